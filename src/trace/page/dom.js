// Elements, numbers, the tooltip. Text from the trace is only ever set as textContent.

const byId = id => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const svgEl = (tag, attributes = {}, ...children) =>
    build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

const number = value => value.toLocaleString('en-US', {maximumFractionDigits: 0});
function percent(share) {
  const value = 100 * share;
  return (value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)) + ' %';
}
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
function unitOf(bytes) {
  let unit = 0;
  while (unit + 1 < units.length && bytes >= 1024 ** (unit + 1)) ++unit;
  return unit;
}
function bytesText(bytes) {
  const unit = unitOf(bytes);
  const value = bytes / 1024 ** unit;
  return (unit === 0 || value >= 100 ? value.toFixed(0) : value.toPrecision(3)) + ' ' + units[unit];
}
const plural = (count, word) => number(count) + ' ' + word + (count === 1 ? '' : 's');

function legend(host, entries) {
  host.replaceChildren(...entries.map(
      ({swatch, sample, text}) =>
          el('li', {},
             sample ? el('span', {class: 'sample ' + sample}, 'word') :
                      el('span', {class: 'swatch ' + swatch.class, style: swatch.style || null}),
             text)));
}

function showTip(text, x, y) {
  const tip = byId('tip');
  tip.textContent = text;
  tip.hidden = false;
  const width = tip.offsetWidth;
  const height = tip.offsetHeight;
  const left = Math.max(8, Math.min(x + 14, innerWidth - width - 8));
  const top = y + 18 + height > innerHeight ? y - height - 12 : y + 18;
  tip.style.left = left + 'px';
  tip.style.top = Math.max(8, top) + 'px';
}
function hideTip() { byId('tip').hidden = true; }

// A table that is built when it is opened, and again when it is stale.
function lazyTable(id, make) {
  const details = byId(id);
  const fill = () => {
    const {head, rows} = make();
    const body =
        el('table', {}, el('thead', {}, el('tr', {}, ...head.map(cell => el('th', {scope: 'col'}, cell)))),
           el('tbody', {}, ...rows.map(row => el('tr', {}, ...row.map(cell => el('td', {}, String(cell)))))));
    details.replaceChildren(details.firstElementChild, el('div', {class: 'scroll', tabindex: '0'}, body));
  };
  details.addEventListener('toggle', () => {
    if (details.open) fill();
  });
  return () => {
    if (details.open) fill();
  };
}

// "#rrggbb" of the style sheet as [r, g, b].
function colour(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
}
const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);

// Steps of 1, 2 or 5 times a power of ten, about `count` up to `most`.
function ticks(most, count) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
  const out = [];
  for (let i = 0; i * step <= most * (1 + 1e-9); ++i) out.push(i * step);
  return out;
}
