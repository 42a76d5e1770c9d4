#include "eval/report/page_style.h"

namespace coppice {

const char kPageStyle[] = R"css(
:root { --page: #f4f5f7; --surface: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --page: #101318; --surface: #181c22; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main { max-width: 1040px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 24px; }
main { padding-bottom: 48px; }
.brand { margin: 0; color: var(--ink-2); font-size: 13px; letter-spacing: .04em; }
h1 { margin: 2px 0 8px; font-size: 24px; line-height: 1.25; font-weight: 650; overflow-wrap: anywhere; }
h2 { margin: 0 0 2px; font-size: 17px; font-weight: 650; }
.note { margin: 0 0 12px; color: var(--ink-2); font-size: 13.5px; max-width: 110ch; }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 16px 0 0; }
nav { font-size: 13.5px; margin: 0; }
nav a { margin-right: 14px; display: inline-block; }
a { color: var(--c1); }
.scroll { overflow-x: auto; }
.scroll > svg.chart { width: 100%; min-width: 720px; max-width: 960px; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th, td { text-align: right; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--ink-2); font-weight: 600; }
thead th { vertical-align: bottom; max-width: 170px; overflow-wrap: anywhere; }
th:first-child, td.text, th.text { text-align: left; }
td.text { overflow-wrap: anywhere; }
td.name { min-width: 110px; }
td.mark svg { width: 14px; height: 14px; margin-top: 4px; }
.scores th:first-child { position: sticky; left: 0; background: var(--surface); min-width: 130px; max-width: 210px; overflow-wrap: break-word; }
.scores td { white-space: nowrap; }
.scores thead th { font-size: 12.5px; overflow-wrap: normal; }
.scores th small { display: block; font-weight: 400; font-size: 12px; }
.scores .sum { font-weight: 600; }
td small { display: block; color: var(--ink-2); font-size: 12px; }
td i { color: var(--ink-2); font-style: normal; font-size: 12px; }
.chip { display: inline-block; width: 10px; height: 10px; border-radius: 2px; background: currentColor; margin-right: 6px; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12.5px; overflow-wrap: anywhere; }
details { margin-top: 10px; font-size: 13px; }
summary { cursor: pointer; color: var(--ink-2); width: fit-content; }
details .scroll { max-height: 340px; overflow: auto; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; }
@media (max-width: 700px) { header, main { padding-left: 12px; padding-right: 12px; } section { padding: 14px 12px; } }
@media print { section { break-inside: avoid; } details { display: none; } }
)css";

}  // namespace coppice
