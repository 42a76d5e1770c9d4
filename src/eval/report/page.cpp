#include "eval/report/page.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"
#include "base/new_file.h"
#include "eval/journal.h"
#include "eval/report/figures/figures.h"
#include "eval/report/markdown.h"
#include "eval/report/page_style.h"
#include "eval/summary.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

std::string NumbersTable(const Figure& figure) {
  if (figure.numbers.size() < 2) return "";
  std::string html = "<details><summary>Numbers</summary><div class=\"scroll\"><table>";
  for (size_t r = 0; r < figure.numbers.size(); ++r) {
    html += "<tr>";
    for (size_t c = 0; c < figure.numbers[r].size(); ++c) {
      const std::string tag = r == 0 ? "th" : "td";
      html += fmt::format("<{}{}>{}</{}>", tag, c == 0 ? " class=\"text\"" : "",
                          Escaped(figure.numbers[r][c]), tag);
    }
    html += "</tr>\n";
  }
  return html + "</table></div></details>\n";
}

std::string Section(const Figure& figure) {
  std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", figure.id, Escaped(figure.title));
  if (!figure.missing.empty()) {
    html += fmt::format("<p class=\"note\">Not here: {}.</p>\n", Escaped(figure.missing));
  } else {
    html += fmt::format("<p class=\"note\">{}</p>\n", Escaped(figure.note));
    html += figure.html;
    if (figure.picture) html += "<div class=\"scroll\">" + figure.picture->Element() + "</div>\n";
    html += NumbersTable(figure);
  }
  return html + "</section>\n";
}

// The setting behind each method's name, with its mark in the figures.
std::string MethodSection(const ReportData& data) {
  std::string html =
      "<section id=\"methods\">\n<h2>Methods</h2>\n<div class=\"scroll\"><table>\n<tr><th "
      "class=\"text\"></th>"
      "<th class=\"text\">name</th><th class=\"text\">settings</th></tr>\n";
  for (size_t a = 0; a < data.arms().size(); ++a) {
    const ReportArm& arm = data.arms()[a];
    Svg mark(fmt::format("mark-{}", a), 14, 14, arm.name, "its mark in the figures");
    DrawMark(mark, {7, 7}, arm.mark);
    std::string settings = arm.prune == "none" ? "the whole prompt in every layer"
                                               : fmt::format("<code>{}</code>", Escaped(arm.spec));
    if (arm.stood_aside) settings += fmt::format("<br>Stood aside: {}", Escaped(arm.reason));
    html += fmt::format(
        "<tr><td class=\"mark\">{}</td><td class=\"text name\">{}</td><td "
        "class=\"text\">{}</td></tr>\n",
        mark.Element(), Escaped(arm.name), settings);
  }
  return html + "</table></div>\n</section>\n";
}

std::string SettingsSection(const ReportData& data) {
  if (!data.settings().is_object()) return "";  // rows alone do not say them
  std::string html =
      "<section id=\"settings\">\n<h2>Settings</h2>\n<p class=\"note\">As in the first line of "
      "samples.jsonl, "
      "which holds every answer.</p>\n<div class=\"scroll\"><table>\n";
  for (const auto& [name, value] : data.settings().items()) {
    const std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    html += fmt::format("<tr><th class=\"text\">{}</th><td class=\"text\"><code>{}</code></td></tr>\n",
                        Escaped(name), Escaped(text));
  }
  return html + "</table></div>\n</section>\n";
}

std::string Page(const ReportData& data, const std::vector<Figure>& figures) {
  const std::string model = data.model().empty() ? "a model" : data.model();
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
      "dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>coppice eval: {}</title>\n<style>{}{}</style>\n</head>\n<body>\n<header>\n"
      "<p class=\"brand\">coppice eval</p>\n<h1>{}</h1>\n<nav>",
      Escaped(model), kChartStyle, kPageStyle, Escaped(model));
  for (const Figure& figure : figures) {
    if (figure.missing.empty())
      html += fmt::format("<a href=\"#{}\">{}</a>\n", figure.id, Escaped(figure.title));
  }
  html += "</nav>\n</header>\n<main>\n";
  html += MethodSection(data);
  for (const Figure& figure : figures) html += Section(figure);
  html += SettingsSection(data);
  return html + "</main>\n</body>\n</html>\n";
}

void Write(const std::string& path, const std::string& text) {
  NewFile file(path, "report");
  file.Append(text);
  file.Commit();
}

void WritePictures(const std::vector<Figure>& figures, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw Error("[report] {}: cannot make the folder: {}", folder, failed.message());
  for (const Figure& figure : figures) {
    if (figure.picture) Write(folder + "/" + figure.id + ".svg", figure.picture->File(kChartStyle));
  }
}

}  // namespace

std::string ReportPage(const ReportData& data) { return Page(data, Figures(data)); }

std::string WriteReport(const std::string& source, const ReportOutputs& outputs) {
  const std::filesystem::path path = source;
  const bool is_rows = path.extension() == ".json";
  const std::string from = is_rows ? source : source + "/samples.jsonl";
  const std::string page =
      is_rows ? std::filesystem::path(path).replace_extension(".html").string() : source + "/report.html";
  RecordedRun run;
  if (!is_rows) run = ReadRecordedRun(from);
  std::vector<ResultRow> rows = is_rows ? ReadResults(from) : Summarize(run.records);
  if (!is_rows) KeepVerdicts(source, rows);
  const ReportData data(rows, run.settings);
  const std::vector<Figure> figures = Figures(data);
  if (!is_rows) WriteRows(rows, source + "/results.json");
  Write(page, Page(data, figures));
  if (!outputs.pictures.empty()) WritePictures(figures, outputs.pictures);
  if (!outputs.markdown.empty()) Write(outputs.markdown, MarkdownTables(data));
  return page;
}

}  // namespace coppice
