#include "eval/report/markdown.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>

#include "eval/report/figures/figures.h"

namespace coppice {

namespace {

using CellText = std::function<std::string(size_t group, size_t arm)>;

// A cell ends at a bar, even within backticks.
std::string CellSafe(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe += '\\';
    safe += c == '\n' || c == '\r' ? ' ' : c;
  }
  return safe;
}

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += " " + cell + " |";
  return row + "\n";
}

// The first columns are text, numbers stand to the right.
std::string Head(const std::vector<std::string>& titles, size_t texts = 1) {
  std::string rules = "|";
  for (size_t i = 0; i < titles.size(); ++i) rules += i < texts ? "---|" : "--:|";
  return Row(titles) + rules + "\n";
}

std::string ScoreText(double score, const Interval& interval) {
  if (!std::isfinite(score)) return "";
  const std::string ends = IntervalText(interval);
  return fmt::format("{:.1f}", score) + (ends.empty() ? "" : " (" + ends + ")");
}

// Methods by tasks; empty if every cell is.
std::string Matrix(const ReportData& data, const char* title, const CellText& text) {
  std::vector<std::string> titles = {"method"};
  for (const ReportGroup& group : data.groups()) titles.push_back(CellSafe(group.name()));
  std::string table = fmt::format("\n{}\n\n", title) + Head(titles);
  bool any = false;
  for (size_t a = 0; a < data.arms().size(); ++a) {
    std::vector<std::string> cells = {CellSafe(data.arms()[a].name)};
    for (size_t g = 0; g < data.groups().size(); ++g) {
      cells.push_back(text(g, a));
      any = any || !cells.back().empty();
    }
    table += Row(cells);
  }
  return any ? table : "";
}

std::string Means(const ReportData& data) {
  const std::vector<size_t> scored = data.Scored();
  const std::vector<size_t> timed = data.Shared(&ResultRow::speed_up),
                            counted = data.Shared(&ResultRow::flops_ratio);
  const std::vector<size_t> compared = data.Shared(&ResultRow::kl);
  std::string table = Head({"method", "settings", "score", "TTFT", "FLOPs", "KL", "stood aside"}, 2);
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const ReportArm& arm = data.arms()[a];
    size_t aside = 0;
    for (size_t g = 0; g < data.groups().size(); ++g) aside += data.Row(g, a).StoodAside() ? 1 : 0;
    table += Row({CellSafe(arm.name), arm.prune == "none" ? "" : "`" + CellSafe(arm.prune) + "`",
                  ScoreText(data.Mean(scored, a, &ResultRow::score), data.MeanInterval(scored, a)),
                  Cell(1 / data.GeometricMean(timed, a, &ResultRow::speed_up), PercentText),
                  Cell(data.Mean(counted, a, &ResultRow::flops_ratio), PercentText),
                  Cell(data.Mean(compared, a, &ResultRow::kl), PlainText),
                  aside > 0 ? fmt::format("{} of {}", aside, data.groups().size()) : ""});
  }
  return table;
}

}  // namespace

std::string MarkdownTables(const ReportData& data) {
  if (data.groups().empty()) return "No sample has been answered yet.\n";
  std::string text = fmt::format(
      "Scores are {}, in brackets 95 % intervals; the rest is of all {}. Time to the first token (TTFT) and "
      "FLOPs of the prefill are shares of dense's, KL is the divergence from dense in nats.\n\n",
      MeansText(data, data.Scored().size()), data.groups().size());
  text += Means(data);
  for (const std::string& note : data.AsideNotes()) text += "\n" + note + ".\n";
  text +=
      Matrix(data, "Score in percent (perplexity as it is), with 95 % intervals:", [&](size_t g, size_t a) {
        const ResultRow& row = data.Row(g, a);
        return (row.StoodAside() ? "dense: " : "") + ScoreText(row.score, row.score_interval);
      });
  text += Matrix(data, "TTFT, of dense's:", [&](size_t g, size_t a) {
    return data.Row(g, a).StoodAside() ? "aside" : Cell(1 / data.Row(g, a).speed_up, PercentText);
  });
  text += Matrix(data, "FLOPs of the prefill, of dense's:", [&](size_t g, size_t a) {
    return Cell(data.Row(g, a).flops_ratio, PercentText);
  });
  text += Matrix(data, "KL from dense, nats:", [&](size_t g, size_t a) {
    return a == 0 ? "" : Cell(data.Row(g, a).kl, PlainText);
  });
  return text;
}

}  // namespace coppice
