#include "eval/paper/paper_page.h"

#include <fmt/core.h>

#include "eval/report/marks.h"
#include "eval/report/page_style.h"

namespace coppice {

namespace {

constexpr const char* kPaperStyle = R"css(
.paper td, .paper th { white-space: nowrap; }
.paper thead th { max-width: none; }
.paper tr.begins td { border-top: 2px solid var(--line); }
.paper tr.published td, .paper td.published { color: var(--ink-2); }
.paper th.block { text-align: center; }
.paper th.block:first-child { border-bottom: none; }
.paper th.block:not(:first-child) { border-left: 1px solid var(--line); padding-left: 14px; }
.paper td.first, .paper th.first { border-left: 1px solid var(--line); padding-left: 14px; }
)css";

// Whether a column opens a block of its own.
bool Opens(const PaperSheet& sheet, size_t c) {
  return !sheet.columns[c].block.empty() && (c == 0 || sheet.columns[c - 1].block != sheet.columns[c].block);
}

std::string Blocks(const PaperSheet& sheet) {
  std::string html;
  size_t c = 0;
  while (c < sheet.columns.size()) {
    size_t end = c + 1;
    while (end < sheet.columns.size() && sheet.columns[end].block == sheet.columns[c].block) ++end;
    html +=
        fmt::format("<th class=\"block\" colspan=\"{}\">{}</th>", end - c, Escaped(sheet.columns[c].block));
    c = end;
  }
  return "<tr>" + html + "</tr>\n";
}

std::string CellClass(const PaperSheet& sheet, size_t c) {
  std::string names = sheet.columns[c].text ? "text" : "";
  if (Opens(sheet, c)) names += names.empty() ? "first" : " first";
  if (sheet.columns[c].published) names += names.empty() ? "published" : " published";
  return names.empty() ? "" : fmt::format(" class=\"{}\"", names);
}

std::string TableHtml(const PaperSheet& sheet) {
  std::string html = "<div class=\"scroll paper\"><table>\n<thead>\n";
  if (!sheet.columns.back().block.empty()) html += Blocks(sheet);
  html += "<tr>";
  for (size_t c = 0; c < sheet.columns.size(); ++c)
    html += fmt::format("<th{}>{}</th>", CellClass(sheet, c), Escaped(sheet.columns[c].name));
  html += "</tr>\n</thead>\n<tbody>\n";
  for (const SheetLine& line : sheet.lines) {
    html +=
        fmt::format("<tr class=\"{}{}\">", line.begins ? "begins" : "", line.published ? " published" : "");
    for (size_t c = 0; c < line.cells.size(); ++c)
      html += fmt::format("<td{}>{}</td>", CellClass(sheet, c), Escaped(line.cells[c]));
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table></div>\n";
}

std::string Section(const PaperPage::Table& table) {
  const PaperSheet& sheet = table.sheet;
  std::string html =
      fmt::format("<section id=\"table-{}\">\n<h2>{}</h2>\n<p class=\"note\">Published figures: {}.</p>\n",
                  Escaped(sheet.id), Escaped(sheet.title), Escaped(sheet.source));
  html += TableHtml(sheet);
  if (table.figure) html += "<div class=\"scroll\">" + table.figure->Element() + "</div>\n";
  if (!sheet.notes.empty()) {
    html += "<ul class=\"note\">\n";
    for (const std::string& note : sheet.notes) html += "<li>" + Escaped(note) + "</li>\n";
    html += "</ul>\n";
  }
  return html + "</section>\n";
}

}  // namespace

std::string PageText(const PaperPage& page) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
      "dark\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>{0} on {1}</title>\n<style>{2}{3}{4}</style>\n</head>\n<body>\n<header>\n"
      "<p class=\"brand\">coppice eval, the tables of a paper</p>\n<h1>{0}</h1>\n<p class=\"note\">On {1}. "
      "Ratios are dense over the method: above 1 is faster.</p>\n<nav>",
      Escaped(page.title), Escaped(page.model), kChartStyle, kPageStyle, kPaperStyle);
  for (const PaperPage::Table& table : page.tables)
    html += fmt::format("<a href=\"#table-{0}\">{0}</a>\n", Escaped(table.sheet.id));
  html += "</nav>\n</header>\n<main>\n";
  for (const PaperPage::Table& table : page.tables) html += Section(table);
  if (!page.reports.empty()) {
    html +=
        "<section>\n<h2>Reports of the runs</h2>\n<p class=\"note\">Scores by task with their intervals, "
        "settings, and every figure of coppice eval.</p>\n<ul>\n";
    for (const std::string& report : page.reports)
      html += fmt::format("<li><a href=\"{0}\">{0}</a></li>\n", Escaped(report));
    html += "</ul>\n</section>\n";
  }
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace coppice
