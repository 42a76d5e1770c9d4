// Score and speed-up by task and method: the papers' main table.
#include <fmt/core.h>

#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

// A task's name may be broken into lines between its parts.
std::string HeadCell(const ReportGroup& group) {
  std::string name;
  for (const char c : Escaped(group.task)) {
    name += c;
    if (c == '/' || c == '_') name += "&#8203;";
  }
  const std::string length =
      group.length == 0 ? "own length" : CountText(static_cast<double>(group.length)) + " tokens";
  return fmt::format("<th scope=\"col\">{}<small>{}</small></th>", name, length);
}

std::string IntervalMark(const Interval& interval) {
  const std::string text = IntervalText(interval);
  return text.empty() ? "" : fmt::format(" <i>({})</i>", text);
}

// "58.0 (38 to 76)" over "1.52x", and further values in the tooltip; "dense: 58.0" where the method stood
// aside.
std::string DataCell(const ReportData& data, size_t group, size_t arm) {
  const ResultRow& row = data.Row(group, arm);
  if (!std::isfinite(row.score)) return "<td></td>";
  const std::string title = fmt::format(
      "{} samples; KL {}; FLOPs {}; TTFT {}{}", row.n ? CountText(static_cast<double>(*row.n)) : "",
      Cell(row.kl, PlainText), Cell(row.flops_ratio, PercentText), Cell(row.ttft_ms, TimeText),
      std::isfinite(row.score_norm) ? fmt::format("; acc_norm {:.1f}", row.score_norm) : "");
  return fmt::format("<td title=\"{}\">{}{:.1f}{}<small>{}</small></td>", Escaped(title),
                     row.StoodAside() ? "dense: " : "", row.score, IntervalMark(row.score_interval),
                     row.StoodAside() ? "stood aside" : Cell(row.speed_up, RatioText));
}

std::string MeanCell(const ReportData& data, size_t arm) {
  const std::vector<size_t> scored = data.Scored();
  return fmt::format("<td class=\"sum\">{:.1f}{}<small>{}</small></td>",
                     data.Mean(scored, arm, &ResultRow::score), IntervalMark(data.MeanInterval(scored, arm)),
                     Cell(data.GeometricMean(scored, arm, &ResultRow::speed_up), RatioText));
}

// Means over all tasks that say it.
struct ShareColumn {
  const char* label;
  ReportData::Number number;
  const NumberText text;
};
const ShareColumn kShareColumns[] = {{"FLOPs<small>of prefill</small>", &ResultRow::flops_ratio, PercentText},
                                     {"KL<small>from dense, nats</small>", &ResultRow::kl, PlainText}};

std::string Head(const ReportData& data) {
  std::string row = "<tr><th scope=\"col\">method</th>";
  for (const ReportGroup& group : data.groups()) row += HeadCell(group);
  const size_t scored = data.Scored().size();
  if (scored > 1) row += fmt::format("<th scope=\"col\">mean<small>of {}</small></th>", scored);
  for (const ShareColumn& column : kShareColumns) {
    if (!data.Shared(column.number).empty()) row += fmt::format("<th scope=\"col\">{}</th>", column.label);
  }
  return row + "</tr>";
}

std::string ArmRow(const ReportData& data, size_t arm) {
  const ReportArm& head = data.arms()[arm];
  std::string row = fmt::format("<tr><th scope=\"row\"><span class=\"chip c{}\"></span>{}</th>",
                                head.mark.colour, Escaped(head.name));
  for (size_t g = 0; g < data.groups().size(); ++g) row += DataCell(data, g, arm);
  if (data.Scored().size() > 1) row += MeanCell(data, arm);
  for (const ShareColumn& column : kShareColumns) {
    const std::vector<size_t> groups = data.Shared(column.number);
    if (!groups.empty())
      row +=
          fmt::format("<td class=\"sum\">{}</td>", Cell(data.Mean(groups, arm, column.number), column.text));
  }
  return row + "</tr>\n";
}

}  // namespace

Figure ScoreTable(const ReportData& data) {
  Figure figure{.id = "scores",
                .title = "Score and speed-up by task and method",
                .note =
                    "Score in percent (perplexity as it is) with its 95 % interval, and below it how many "
                    "times sooner the first token comes than from the dense model: the median over samples."};
  if (data.groups().empty()) {
    figure.missing = "no sample has been answered yet";
    return figure;
  }
  if (data.LeftOut() > 0 && !data.Scored().empty())
    figure.note += fmt::format(" Scores in the last columns are {}.", MeansText(data, data.Scored().size()));
  std::string& html = figure.html;
  html = "<div class=\"scroll\"><table class=\"scores\"><thead>" + Head(data) + "</thead>\n<tbody>\n";
  for (size_t a = 0; a < data.arms().size(); ++a) html += ArmRow(data, a);
  html += "</tbody></table></div>\n";
  for (const std::string& note : data.AsideNotes())
    html += fmt::format("<p class=\"aside\">{}.</p>\n", Escaped(note));
  return figure;
}

}  // namespace coppice
