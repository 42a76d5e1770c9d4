// Charts as SVG: axes with titles and units, a hairline with the values under the pointer or the arrow keys.

import {ticks} from '../lib/charts.js';
import {byId, el, hideTip, number, percent, showTip, svgEl} from '../lib/dom.js';
import {data, kinds, kindTotals, layerCount, layers, promptTokens, stepCount, steps} from './data.js';

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
function unitOf(bytes) {
  let unit = 0;
  while (unit + 1 < units.length && bytes >= 1024 ** (unit + 1)) ++unit;
  return unit;
}
export function bytesText(bytes) {
  const unit = unitOf(bytes);
  const value = bytes / 1024 ** unit;
  return (unit === 0 || value >= 100 ? value.toFixed(0) : value.toPrecision(3)) + ' ' + units[unit];
}

// Axes and grid; x(i) is the middle of slot i of `slots`, y(value) a height.
function frame(host, o) {
  const width = Math.max(260, host.clientWidth);
  const height = o.height || 240;
  const yTicks = ticks(o.yMax, 5).filter(value => o.yText !== number || Number.isInteger(value));
  const top = Math.max(o.yMax, yTicks[yTicks.length - 1]) || 1;
  const labels = yTicks.map(o.yText);
  const left = 26 + 7 * Math.max(...labels.map(label => label.length));
  const box = {left, right: width - 8, top: 10, bottom: height - 42};
  const svg = svgEl(
      'svg',
      {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', tabindex: '0', 'aria-label': o.label});
  const slot = (box.right - box.left) / o.slots;
  const x = i => box.left + (i + .5) * slot;
  const y = value => box.bottom - (box.bottom - box.top) * value / top;
  yTicks.forEach((value, i) => {
    svg.append(
        svgEl('line', {class: 'grid', x1: box.left, x2: box.right, y1: y(value), y2: y(value)}),
        svgEl('text', {x: box.left - 6, y: y(value) + 4, 'text-anchor': 'end'}, labels[i]));
  });
  const digits = String(o.slots).length;
  for (const value of ticks(
           o.slots - 1,
           Math.max(2, Math.min(o.slots, Math.floor((box.right - box.left) / (22 + 10 * digits)))))) {
    if (!Number.isInteger(value)) continue;
    svg.append(svgEl('text', {x: x(value), y: box.bottom + 16, 'text-anchor': 'middle'}, number(value)));
  }
  svg.append(
      svgEl('line', {class: 'axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}),
      svgEl('text', {x: (box.left + box.right) / 2, y: height - 8, 'text-anchor': 'middle'}, o.xTitle),
      svgEl(
          'text',
          {transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, 'text-anchor': 'middle'},
          o.yTitle));
  return {svg, box, slot, x, y, slots: o.slots};
}

// Shows describe(i) for the slot under the pointer, or the one that the arrow keys move to.
function readout(host, chart, describe, onPick) {
  const {svg, box, slot, slots} = chart;
  const hair = svgEl('line', {class: 'hair', y1: box.top, y2: box.bottom, visibility: 'hidden'});
  svg.append(hair);
  // Choosing a slot redraws the chart; focus and position are kept.
  const focused = host.contains(document.activeElement);
  let at = focused ? host.at : -1;
  const show = (i, x, y) => {
    at = i;
    host.at = i;
    hair.setAttribute('x1', chart.x(i));
    hair.setAttribute('x2', chart.x(i));
    hair.setAttribute('visibility', 'visible');
    showTip(describe(i), x, y);
  };
  const hide = () => {
    hair.setAttribute('visibility', 'hidden');
    hideTip();
  };
  const slotAt = event => {
    const bounds = svg.getBoundingClientRect();
    const x = (event.clientX - bounds.left) * svg.viewBox.baseVal.width / bounds.width;
    return Math.max(0, Math.min(slots - 1, Math.floor((x - box.left) / slot)));
  };
  svg.addEventListener('pointermove', event => show(slotAt(event), event.clientX, event.clientY));
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('blur', hide);
  svg.addEventListener('click', event => {
    if (onPick) onPick(slotAt(event));
  });
  svg.addEventListener('keydown', event => {
    const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
    if (event.key === 'Enter' && onPick && at >= 0) {
      onPick(at);
      return;
    }
    if (event.key === 'Escape') {
      hide();
      return;
    }
    if (move === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(slots - 1, at < 0 ? 0 : at + move));
    const bounds = svg.getBoundingClientRect();
    show(
        next, bounds.left + chart.x(next) * bounds.width / svg.viewBox.baseVal.width,
        bounds.top + bounds.height / 2);
  });
  host.replaceChildren(svg);
  if (focused) svg.focus({preventScroll: true});
}

function bar(chart, i, from, to, width, shift, cls) {
  const high = chart.y(to);
  const low = chart.y(from);
  chart.svg.append(svgEl('rect', {
    class: cls,
    x: chart.x(i) + shift - width / 2,
    y: high,
    width,
    height: Math.max(low - high, to > from ? .75 : 0)
  }));
}

export function drawKept(step, layer, pickLayer) {
  const host = byId('kept');
  const attended = step > 0 ? steps[step - 1].attended : null;
  const most = Math.max(promptTokens, ...layers.map(l => l.rows), ...(attended || [0]));
  const chart = frame(host, {
    slots: layerCount,
    yMax: most,
    yText: number,
    xTitle: 'layer',
    yTitle: 'tokens',
    label:
        'Bars: for each layer the tokens with keys and the tokens whose FFN ran, in prefill. The table below has the numbers.'
  });
  const width = Math.max(.8, Math.min(14, chart.slot * .38));
  for (let l = 0; l < layerCount; ++l) {
    bar(chart, l, 0, layers[l].rows, width, -width / 2 - (width > 3 ? .5 : 0), 'fill-keys');
    bar(chart, l, 0, layers[l].ffnCount, width, width / 2 + (width > 3 ? .5 : 0), 'fill-ffn');
    if (attended) {
      chart.svg.append(svgEl('rect', {
        class: 'fill-ink',
        x: chart.x(l) - width,
        y: chart.y(attended[l]) - 1,
        width: 2 * width,
        height: 2
      }));
    }
  }
  const {box} = chart;
  chart.svg.append(svgEl(
      'line',
      {class: 'dense', x1: box.left, x2: box.right, y1: chart.y(promptTokens), y2: chart.y(promptTokens)}));
  if (layer >= 0)
    chart.svg.append(
        svgEl('line', {class: 'now', x1: chart.x(layer), x2: chart.x(layer), y1: box.top, y2: box.bottom}));
  readout(
      host, chart,
      l => `layer ${l}\nkeys: ${number(layers[l].rows)} (${percent(layers[l].rows / promptTokens)})` +
          (layers[l].rows < layers[l].keptCount ?
               ` in each head,\n${number(layers[l].keptCount)} in any head` :
               '') +
          `\nFFN: ${number(layers[l].ffnCount)}` +
          (attended ? `\nattended in step ${step}: ${number(attended[l])}` : ''),
      pickLayer);
}

// The bytes that a dense run would hold after `step`.
export const denseBytes = step => data.denseBytes * (promptTokens + step) / promptTokens;
export const bytesAt = step => step === 0 ? data.bytes : steps[step - 1].bytes;

export function drawBytes(step, pickStep) {
  const host = byId('bytes');
  let most = denseBytes(stepCount);
  for (let s = 0; s <= stepCount; ++s) most = Math.max(most, bytesAt(s).reduce((a, b) => a + b, 0));
  const scale = 1024 ** unitOf(most);
  const chart = frame(host, {
    slots: stepCount + 1,
    yMax: most / scale,
    yText: value => String(+value.toPrecision(3)),
    xTitle: 'step (0: end of prefill)',
    yTitle: units[unitOf(most)],
    label: 'Areas, one on the other: bytes of KV, Aux and cold tier after each step, against a dense run.'
  });
  const {box, svg, x, y} = chart;
  // A step is as wide as its slot, so that few steps look like bars and many like an area.
  const edge = s => s < 0 ? box.left : Math.min(box.right, x(s) + chart.slot / 2);
  const gap = chart.slot > 12 ? chart.slot * .15 : 0;
  const below = new Float64Array(stepCount + 1);
  ['fill-keys', 'fill-aux', 'fill-cold'].forEach((cls, part) => {
    let path = '';
    for (let s = 0; s <= stepCount; ++s) {
      const low = below[s];
      const high = low + bytesAt(s)[part] / scale;
      below[s] = high;
      if (high > low) path += `M${edge(s - 1) + gap} ${y(low)}V${y(high)}H${edge(s) - gap}V${y(low)}Z`;
    }
    svg.append(svgEl('path', {class: cls, d: path}));
  });
  let dense = '';
  for (let s = 0; s <= stepCount; ++s)
    dense +=
        `${s ? 'L' : 'M'}${edge(s - 1)} ${y(denseBytes(s) / scale)}L${edge(s)} ${y(denseBytes(s) / scale)}`;
  svg.append(svgEl('path', {class: 'dense', d: dense}));
  if (stepCount > 0)
    svg.append(svgEl('line', {class: 'now', x1: x(step), x2: x(step), y1: box.top, y2: box.bottom}));
  readout(host, chart, s => {
    const [kv, aux, cold] = bytesAt(s);
    return `step ${s}\nKV ${bytesText(kv)}\nAux ${bytesText(aux)}\ncold ${bytesText(cold)}\ndense ${
        bytesText(denseBytes(s))}`;
  }, pickStep);
}

export function drawDensity(layer, pickLayer) {
  const host = byId('density');
  const chart = frame(host, {
    slots: layerCount,
    height: 200,
    yMax: 100,
    yText: value => value + ' %',
    xTitle: 'layer',
    yTitle: 'pairs computed',
    label: 'Bars: share of the causal query-key pairs that each layer computed in prefill.'
  });
  const width = Math.max(.8, Math.min(22, chart.slot * .7));
  for (let l = 0; l < layerCount; ++l) bar(chart, l, 0, 100 * layers[l].density, width, 0, 'fill-keys');
  if (layer >= 0)
    chart.svg.append(svgEl(
        'line',
        {class: 'now', x1: chart.x(layer), x2: chart.x(layer), y1: chart.box.top, y2: chart.box.bottom}));
  readout(
      host, chart,
      l => `layer ${l}\ndensity ${percent(layers[l].density)}` +
          (layers[l].heads.length ? `\nheads ${percent(Math.min(...layers[l].heads))} to ${
                                        percent(Math.max(...layers[l].heads))}` :
                                    ''),
      pickLayer);
}

export function drawEvents(step, pickStep) {
  const host = byId('events');
  const shown = kinds.filter(kind => kindTotals[kind] > 0);
  const totals = steps.map(s => shown.reduce((sum, kind) => sum + s.counts[kind], 0));
  const chart = frame(host, {
    slots: stepCount + 1,
    height: 200,
    yMax: totals.reduce((most, total) => Math.max(most, total), 1),
    yText: number,
    xTitle: 'step',
    yTitle: 'token-layers',
    label:
        'Bars, one on the other: token-layers revived, loaded, offloaded, dropped and evicted in each step.'
  });
  const width = Math.max(.8, Math.min(22, chart.slot * .7));
  steps.forEach((s, i) => {
    let low = 0;
    for (const kind of shown) {
      if (s.counts[kind] > 0)
        bar(chart, i + 1, low, low + s.counts[kind], width, 0,
            kind === 'revived' ? 'fill-aux' : 'fill-' + kind);
      low += s.counts[kind];
    }
  });
  chart.svg.append(svgEl(
      'line', {class: 'now', x1: chart.x(step), x2: chart.x(step), y1: chart.box.top, y2: chart.box.bottom}));
  readout(
      host, chart,
      s => `step ${s}` +
          (s === 0 ? '\nend of prefill' :
                     shown.map(kind => `\n${kind} ${number(steps[s - 1].counts[kind])}`).join('')),
      pickStep);
}

// A table that is built when it is opened, and again when it is stale.
export function lazyTable(id, make) {
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
