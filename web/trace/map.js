// Maps with a row for every layer or head: what each layer holds of each token, and the density of each head.

import {cellMap} from '../lib/charts.js';
import {byId, colour, mix, number, percent} from '../lib/dom.js';
import {layerCount, layers, processesOf, promptTokens} from './data.js';

export const mapBins = step =>
    Math.max(1, Math.min(promptTokens + step, Math.max(260, byId('map').clientWidth) - 60));

function computedBy(layer, first, last) {
  const processes = processesOf(layer, first, last);
  return processes.length ? `\ncomputed by process ${processes.join(', ')}` : '';
}

export function drawMap(view, bins, what, layer, pick) {
  const empty = colour('--empty');
  const held = colour(what === 'ffn' ? '--ffn' : '--keys');
  const revived = colour('--aux');
  const cold = colour('--cold');
  const cell = Math.max(3, Math.min(32, Math.round(260 / layerCount)));
  const {held: h, revived: r, cold: c} = view.map;
  const {g, box} = cellMap(byId('map'), {
    left: 48,
    rows: layerCount,
    columns: bins,
    cell,
    xMax: view.shown - 1,
    xShift: .5,
    xTitle: 'token',
    yTitle: 'layer',
    label: `Map of ${layerCount} layers by ${number(view.shown)} tokens: where each layer holds keys.`,
    colourOf: (column, row) => {
      const i = row * bins + column;
      if (h[i] === 0) return empty;
      let tint = mix(held, cold, Math.min(1, c[i] / h[i]));
      tint = mix(tint, revived, Math.min(1, r[i] / h[i]));
      return mix(empty, tint, .25 + .75 * Math.min(1, h[i]));
    },
    describe: ({column, row}) => {
      const i = row * bins + column;
      const first = Math.floor(column * view.shown / bins);
      const last = Math.max(first, Math.floor((column + 1) * view.shown / bins) - 1);
      return `layer ${row}, ${
                 first === last ? 'token ' + number(first) :
                                  `tokens ${number(first)} to ${number(last)}`}\n` +
          `${what === 'ffn' ? 'FFN ran on' : 'keys of'} ${percent(h[i])}` +
          (r[i] > 0 ? `\nrevived ${percent(r[i])}` : '') +
          (c[i] > 0 ? `\nin the cold tier ${percent(c[i])}` : '') + computedBy(row, first, last);
    },
    pick: ({row, x}) => pick(Math.min(view.shown - 1, Math.floor(x * view.shown)), row),
  });
  g.strokeStyle = getComputedStyle(document.body).color;
  if (layer >= 0) g.strokeRect(box.left - .5, box.top + layer * cell - .5, box.width + 1, cell + 1);
  if (view.shown > promptTokens) {
    const x = Math.round(box.left + box.width * promptTokens / view.shown) + .5;
    g.setLineDash([2, 2]);
    g.strokeRect(x, box.top, 0, box.height);
  }
}

export function drawHeads() {
  const heads = Math.max(...layers.map(layer => layer.heads.length));
  const empty = colour('--empty');
  const full = colour('--keys');
  cellMap(byId('heads'), {
    left: 61,
    rows: heads,
    columns: layerCount,
    cell: Math.max(3, Math.min(12, Math.round(280 / heads))),
    xMax: layerCount - 1,
    xShift: .5,
    xTitle: 'layer',
    yTitle: 'head',
    label: `Heat map of ${heads} heads by ${layerCount} layers: share of pairs computed.`,
    colourOf: (column, row) => mix(
        empty, full, layers[column].heads.length ? layers[column].heads[row] || 0 : layers[column].density),
    describe: ({column, row}) => `layer ${column}, head ${row}\n` +
        (layers[column].heads.length ? percent(layers[column].heads[row] || 0) :
                                       percent(layers[column].density) + ' (all heads)'),
  });
}
