// Score and speed-up by task and method: the papers' main table.
#include <fmt/core.h>

#include <cmath>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

std::string HeadCell(const ReportArm& arm) {
  return fmt::format("<th scope=\"col\"><span class=\"chip c{}\"></span>{}</th>", arm.mark.colour,
                     Escaped(arm.name));
}

// "58.0 ± 3.1" over "1.52x", and what a reader asks for next under the pointer.
std::string DataCell(const ReportData& data, size_t group, size_t arm) {
  const double score = data.Value(group, arm, "score");
  if (!std::isfinite(score)) return "<td></td>";
  const double error = data.Value(group, arm, "score_error");
  const double norm = data.Value(group, arm, "score_norm");
  const std::string title = fmt::format(
      "{} samples; KL {}; FLOPs {}; TTFT {}{}", Cell(data.Value(group, arm, "n"), CountText),
      Cell(data.Value(group, arm, "kl"), PlainText), Cell(data.Value(group, arm, "flops_ratio"), PercentText),
      Cell(data.Value(group, arm, "ttft_ms"), TimeText),
      std::isfinite(norm) ? fmt::format("; acc_norm {:.1f}", norm) : "");
  const double speed_up = data.Value(group, arm, "speed_up");
  const bool aside = arm > 0 && data.Value(group, arm, "active") == 0;
  return fmt::format("<td title=\"{}\">{:.1f}{}<small>{}</small></td>", Escaped(title), score,
                     std::isfinite(error) && error > 0 ? fmt::format(" <i>&#177; {:.1f}</i>", error) : "",
                     aside                     ? "stood aside"
                     : std::isfinite(speed_up) ? RatioText(speed_up)
                                               : "");
}

std::string MeanRow(const ReportData& data) {
  const std::vector<size_t> scored = data.Scored();
  std::string row = fmt::format("<tr class=\"sum\"><th scope=\"row\">mean of {}</th>", scored.size());
  for (size_t a = 0; a < data.arms().size(); ++a)
    row += fmt::format("<td>{:.1f}<small>{}</small></td>", data.Mean(scored, a, "score"),
                       Cell(data.GeometricMean(scored, a, "speed_up"), RatioText));
  return row + "</tr>\n";
}

std::string ShareRow(const ReportData& data, const char* label, const char* name, const NumberText& text) {
  const std::vector<size_t> groups = data.Shared(name);
  if (groups.empty()) return "";
  std::string row = fmt::format("<tr class=\"sum\"><th scope=\"row\">{}</th>", label);
  for (size_t a = 0; a < data.arms().size(); ++a)
    row += fmt::format("<td>{}</td>", Cell(data.Mean(groups, a, name), text));
  return row + "</tr>\n";
}

}  // namespace

Figure ScoreTable(const ReportData& data) {
  Figure figure{.id = "scores",
                .title = "Score and speed-up by task and method",
                .note =
                    "Score in percent (perplexity as it is) with its standard error, and below it how many "
                    "times sooner the first token comes than from the dense model: the median over samples."};
  if (data.groups().empty()) {
    figure.missing = "no sample has been answered yet";
    return figure;
  }
  std::string& html = figure.html;
  html = "<div class=\"scroll\"><table class=\"scores\"><thead><tr><th scope=\"col\">task</th>";
  for (const ReportArm& arm : data.arms()) html += HeadCell(arm);
  html += "</tr></thead>\n<tbody>\n";
  for (size_t g = 0; g < data.groups().size(); ++g) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", Escaped(data.groups()[g].name()));
    for (size_t a = 0; a < data.arms().size(); ++a) html += DataCell(data, g, a);
    html += "</tr>\n";
  }
  if (data.Scored().size() > 1) html += MeanRow(data);
  html += ShareRow(data, "FLOPs of prefill", "flops_ratio", PercentText);
  html += ShareRow(data, "KL from dense, nats", "kl", PlainText);
  html += "</tbody></table></div>\n";
  return figure;
}

}  // namespace coppice
