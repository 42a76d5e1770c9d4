// The selection (step, layer, token), and everything that is drawn from it.

import {legend} from '../lib/charts.js';
import {byId, el, hideTip, number, percent, plural, showTip} from '../lib/dom.js';
import {TokenText} from '../lib/text.js';
import {bytesAt, bytesText, denseBytes, drawBytes, drawDensity, drawEvents, drawKept, lazyTable} from './charts.js';
import {data, ffnDiffers, hasCold, hasHeads, HELD, kinds, kindTotals, layerCount, layers, layerState, MARK, overview,
  positionOf, promptTokens, stepCount, steps, tokenCount} from './data.js';
import {drawHeads, drawMap, mapBins} from './map.js';

const chosen = {
  layer: -1,
  step: stepCount,
  shade: 'keys'
};
let view = null;       // overview() of the step and shade
let layerView = null;  // of the chosen layer: {state, marks}
let scale = null;      // depth levels with colours of their own
const scales = {};     // by shade
const text = new TokenText(byId('text'), classesOf, showToken, (token, event) => {
  if (token >= 0)
    showTip(describeToken(token), event.clientX, event.clientY);
  else
    hideTip();
});

// The depths that get a colour: the ones that occur if they are few, else equal parts of 1 .. layerCount.
// They are taken at the end of prefill, so that a colour means the same at every step.
function depthScale(depth) {
  const present = new Set([layerCount]);
  for (let t = 0; t < promptTokens; ++t)
    if (depth[t] > 0) present.add(depth[t]);
  let levels = [...present].sort((a, b) => a - b);
  if (levels.length > 8) levels = Array.from({length: 8}, (_, i) => 1 + Math.round(i * (layerCount - 1) / 7));
  const shades = levels.map((_, i) => levels.length === 1 ? 8 : Math.round(1 + 7 * i / (levels.length - 1)));
  const shadeOf = new Uint8Array(layerCount + 1);
  for (let d = 1, i = 0; d <= layerCount; ++d) {
    while (i + 1 < levels.length && levels[i + 1] <= d) ++i;
    shadeOf[d] = shades[i];
  }
  return {levels, shades, shadeOf};
}

const markNames = [
  ['evicted', 'deleted in this step'], ['revived', 'revived in this step'],
  ['loaded', 'loaded from the cold tier'], ['offloaded', 'moved to the cold tier'],
  ['dropped', 'dropped in this step, keys stay'], ['past', 'revived before']
];
const markClass = Array.from({length: 64}, (_, bits) => {
  const found = markNames.find(([name]) => bits & MARK[name]);
  return found ? ' m-' + found[0] : '';
});

function classesOf(token) {
  if (token > promptTokens + chosen.step) return 'later';
  if (token === promptTokens + chosen.step) return 'fresh';
  const marks = markClass[(layerView || view).marks[token]];
  if (layerView && !(layerView.state[token] & HELD)) return 'gone' + marks;
  return 'd' + scale.shadeOf[view.depth[token]] + marks;
}

function refreshView() {
  const bins = mapBins(chosen.step);
  view = overview(chosen.step, chosen.shade, bins);
  scale = scales[chosen.shade] ||= depthScale(overview(0, chosen.shade, 1).depth);
  layerView = null;
  if (chosen.layer >= 0) {
    layerView = {state: new Uint8Array(tokenCount), marks: new Uint8Array(tokenCount)};
    layerState(chosen.layer, chosen.step, chosen.shade, layerView.state, layerView.marks);
  }
  drawMap(view, bins, chosen.shade, chosen.layer, (token, layer) => {
    select({layer});
    text.show(token, true);
  });
}

function writeTextLegend() {
  const counts = new Map();
  for (let t = 0; t < promptTokens; ++t) counts.set(view.depth[t], (counts.get(view.depth[t]) || 0) + 1);
  const entries = scale.levels
                      .map((level, i) => {
                        const next = i + 1 < scale.levels.length ? scale.levels[i + 1] : layerCount + 1;
                        let count = 0, high = level;
                        for (const [depth, n] of counts)
                          if (depth >= level && depth < next) {
                            count += n;
                            high = Math.max(high, depth);
                          }
                        return {
                          count,
                          swatch: {class: 'd' + scale.shades[i]},
                          text: `${level}${high > level ? ' to ' + high : ''}${
                              i === scale.levels.length - 1 ? ' of ' + plural(layerCount, 'layer') :
                                                              ''}: ${plural(count, 'token')}`
                        };
                      })
                      .filter((entry, i) => entry.count > 0 || i === scale.levels.length - 1);
  if (counts.has(0)) entries.unshift({sample: 'd0', text: `in no layer: ${plural(counts.get(0), 'token')}`});
  if (chosen.layer >= 0) entries.push({sample: 'gone', text: `not in layer ${chosen.layer}`});
  let seen = 0;
  for (const bits of (layerView || view).marks) seen |= bits;
  for (const [name, text] of markNames)
    if (seen & MARK[name]) entries.push({sample: 'm-' + name, text});
  legend(byId('text-legend'), entries);
  byId('next-mark').disabled = (seen & ~MARK.past) === 0;
}

function writeControls() {
  let remain = 0;
  if (layerView)
    for (const state of layerView.state) remain += state & HELD;
  const layerText = chosen.layer < 0 ? 'all' :
                                       `${chosen.layer}: ${plural(remain, 'token')} ${
                                           chosen.shade === 'ffn' ? 'through the FFN' :
                                               remain === 1       ? 'remains' :
                                                                    'remain'}`;
  byId('layer-out').textContent = layerText;
  byId('layer').setAttribute('aria-valuetext', layerText);
  const stepText = chosen.step === 0 ? '0: end of prefill' : `${chosen.step} of ${stepCount}`;
  byId('step-out').textContent = stepText;
  byId('step').setAttribute('aria-valuetext', stepText);
}

function describeToken(token) {
  if (token > promptTokens + chosen.step) return 'not generated yet';
  const position = positionOf(token);
  const lines =
      [token < promptTokens ? `token ${number(token)}` : `generated token ${number(token - promptTokens)}`];
  lines.push(position < 0 ? 'left out before the model' : `position ${number(position)}`);
  if (token === promptTokens + chosen.step)
    lines.push('just sampled');
  else if (position >= 0)
    lines.push(`${chosen.shade === 'ffn' ? 'FFN in' : 'keys in'} ${view.depth[token]} of ${
        plural(layerCount, 'layer')}`);
  const marks = (layerView || view).marks[token];
  for (const [name, text] of markNames)
    if (marks & MARK[name]) lines.push(text);
  return lines.join('\n');
}

function showToken(token) {
  byId('token-info')
      .replaceChildren(
          el('b', {}, JSON.stringify(data.texts[token])),
          ' ' + describeToken(token).split('\n').join(' \u00b7 '));
}

function drawCharts() {
  const pickLayer = layer => select({layer: layer === chosen.layer ? -1 : layer});
  const pickStep = step => select({step});
  drawKept(chosen.step, chosen.layer, pickLayer);
  drawBytes(chosen.step, pickStep);
  drawDensity(chosen.layer, pickLayer);
  if (hasHeads) drawHeads();
  if (kinds.some(kind => kindTotals[kind] > 0)) drawEvents(chosen.step, pickStep);
}

function refresh() {
  refreshView();
  writeControls();
  writeTextLegend();
  text.repaint();
  drawCharts();
  refreshTables.forEach(fill => fill());
  if (text.cursor >= 0) showToken(text.cursor);
}

let pending = false;
function select(change) {
  Object.assign(chosen, change);
  byId('layer').value = chosen.layer;
  byId('step').value = chosen.step;
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    refresh();
  });
}

function writeHead() {
  const sum = of => layers.reduce((total, layer) => total + of(layer), 0);
  document.title = `coppice trace: ${data.prune}`;
  const fact = (name, text, cls) => el('div', {}, el('dt', {}, name), el('dd', {class: cls || null}, text));
  byId('title').textContent = `${plural(promptTokens, 'token')} through ${plural(layerCount, 'layer')}`;
  byId('facts').replaceChildren(
      fact('Model', data.model), fact('Pruning', data.prune, 'code'), fact('Backend', data.backend),
      fact('Generated', plural(tokenCount - promptTokens, 'token')));
  const first = layers[0].keptCount;
  const tile = (value, text) => el('li', {}, el('b', {}, value), el('span', {}, text));
  const tiles = [
    tile(
        percent(sum(l => l.rows) / (promptTokens * layerCount)),
        'of all token-layers keep their keys after prefill'),
    tile(
        percent(sum(l => l.ffnCount) / (promptTokens * (layerCount - 1) + 1)),
        'of the FFN rows of a dense run'),
    tile(
        bytesText(data.bytes[0] + data.bytes[1] + data.bytes[2]),
        `cache after prefill, dense ${bytesText(data.denseBytes)}`),
    tile(percent(sum(l => l.density) / layerCount), 'attention density, mean over layers')
  ];
  if (first < promptTokens)
    tiles.push(tile(number(first), `of ${plural(promptTokens, 'token')} entered the model`));
  if (kindTotals.revived > 0)
    tiles.push(tile(number(kindTotals.revived), `token-layers revived in ${plural(stepCount, 'step')}`));
  byId('tiles').replaceChildren(...tiles);
}

function writeNotes() {
  byId('kept-note').textContent =
      'In prefill. In a dense run the last layer needs its FFN for the last token only.';
  byId('bytes-note').textContent =
      'KV and Aux are memory, the cold tier is not. The dense run grows by one token a step.';
  byId('density-note').textContent =
      'Share of the causal query-key pairs of the layer\u2019s rows that prefill computed; 100 % is dense attention.';
  legend(byId('kept-legend'), [
    {swatch: {class: 'fill-keys', style: 'background:var(--keys)'}, text: 'keys'},
    {swatch: {class: '', style: 'background:var(--ffn)'}, text: 'FFN rows'},
    ...(stepCount ? [{swatch: {class: 'dash'}, text: 'attended in the step shown'}] : []),
    {swatch: {class: 'line'}, text: 'dense'}
  ]);
  const block = (name, text) => ({swatch: {class: '', style: `background:var(--${name})`}, text});
  legend(byId('bytes-legend'), [
    block('keys', 'KV'), block('aux', 'Aux'), block('cold', 'cold tier'),
    {swatch: {class: 'line'}, text: 'dense'}
  ]);
  const names = {revived: 'aux', loaded: 'cold', offloaded: 'cold', dropped: 'dropped', evicted: 'evicted'};
  legend(
      byId('events-legend'),
      kinds.filter(kind => kindTotals[kind] > 0)
          .map(kind => ({
                 swatch: {
                   class: '',
                   style: `background:var(--${names[kind]});opacity:${kind === 'offloaded' ? .5 : 1}`
                 },
                 text: kind
               })));
  legend(byId('heads-legend'), [{
           swatch: {class: 'bar', style: 'background:linear-gradient(90deg,var(--empty),var(--keys))'},
           text: '0 to 100 % of pairs computed'
         }]);
}

function writeShade() {
  const ffn = chosen.shade === 'ffn';
  byId('map-note').textContent =
      (ffn ? 'Where each layer ran its FFN in prefill. ' : 'Where each layer has keys. ') +
      'Layers from top to bottom. Click to show a layer and go to a token.';
  byId('text-note').textContent = 'The stronger the shade, the more layers ' +
      (ffn ? 'ran their FFN on the token in prefill.' :
             'hold the token\u2019s keys' + (stepCount ? ' after the step shown.' : '.')) +
      ' Choose a layer to see what remains in it.';
  for (const id of ['text', 'text-legend']) byId(id).classList.toggle('by-ffn', ffn);
  const block = (name, text) => ({swatch: {class: '', style: `background:var(--${name})`}, text});
  legend(
      byId('map-legend'),
      chosen.shade === 'ffn' ? [block('ffn', 'FFN ran'), block('empty', 'FFN skipped')] : [
        block('keys', 'keys there'), ...(kindTotals.revived ? [block('aux', 'revived')] : []),
        ...(hasCold ? [block('cold', 'in the cold tier')] : []), block('empty', 'none')
      ]);
}

const refreshTables = [
  lazyTable(
      'kept-table',
      () => ({
        head: ['layer', 'keys', 'FFN rows', ...(chosen.step ? [`attended in step ${chosen.step}`] : [])],
        rows: layers.map(
            (l, i) =>
                [i, number(l.rows), number(l.ffnCount),
                 ...(chosen.step ? [number(steps[chosen.step - 1].attended[i])] : [])])
      })),
  lazyTable('bytes-table', () => ({
                             head: ['step', 'KV', 'Aux', 'cold', 'dense'],
                             rows: Array.from(
                                 {length: stepCount + 1},
                                 (_, s) => [s, ...bytesAt(s).map(bytesText), bytesText(denseBytes(s))])
                           })),
  lazyTable(
      'density-table',
      () => ({
        head: ['layer', 'density', ...(hasHeads ? ['least head', 'most head'] : [])],
        rows: layers.map(
            (l, i) =>
                [i, percent(l.density),
                 ...(hasHeads ? l.heads.length ?
                                [percent(Math.min(...l.heads)), percent(Math.max(...l.heads))] :
                                ['', ''] :
                                [])])
      })),
  lazyTable('events-table', () => ({
                              head: ['step', ...kinds],
                              rows: steps.map((s, i) => [i + 1, ...kinds.map(kind => number(s.counts[kind]))])
                            })),
];

function nextMark() {
  const marks = (layerView || view).marks;
  for (let i = 1; i <= tokenCount; ++i) {
    const token = (text.cursor + i) % tokenCount;
    const before = token > 0 ? marks[token - 1] & ~MARK.past : 0;
    const here = marks[token] & ~MARK.past;
    if (here && (here !== before || i === tokenCount)) {
      text.show(token, true);
      return;
    }
  }
}

function listen() {
  byId('layer').addEventListener('input', event => select({layer: Number(event.target.value)}));
  byId('step').addEventListener('input', event => select({step: Number(event.target.value)}));
  for (const radio of document.querySelectorAll('input[name=shade]')) {
    radio.addEventListener('change', () => {
      select({shade: radio.value});
      writeShade();
    });
  }
  byId('next-mark').addEventListener('click', nextMark);
  byId('text').addEventListener('pointerleave', hideTip);
  byId('text').addEventListener('scroll', hideTip);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', refresh);
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;  // a phone's address bar changes the height alone
    width = innerWidth;
    select({});
  });
}

byId('layer').max = layerCount - 1;
byId('step').max = stepCount;
byId('layer').value = chosen.layer;
byId('step').value = chosen.step;
byId('step-control').hidden = stepCount === 0;
byId('next-mark').hidden = !kinds.some(kind => kindTotals[kind] > 0);
byId('shade-choice').hidden = !ffnDiffers;
byId('events-card').hidden = !kinds.some(kind => kindTotals[kind] > 0);
byId('heads-block').hidden = !hasHeads;
for (const id of ['density-card', 'events-card']) byId(id).classList.toggle('wide', hasHeads);
writeHead();
writeNotes();
writeShade();
text.set(data.texts, promptTokens, 'generated');
refresh();
listen();
