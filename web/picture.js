// What became of the prompt in each layer: a map of layers by tokens, the legend, and the text shaded by depth. Fed
// while a prefill runs.

import {byId, colour, el, mix, number, percent, plural, rgb} from './dom.js';
import {TokenText} from './text.js';

const kShades = 8;     // classes d1 to d8 of the style sheet
const kPause = 120;    // ms between two drawings of a running prefill
const kGutter = 30;    // of the map, for the layers' numbers
const kLegend = 9;     // entries at most

// "prompt_layers" says runs in and out in turn: calls `use(begin, end)` for those in.
function forRuns(lengths, use) {
  let at = 0;
  lengths.forEach((length, i) => {
    if (i % 2 === 0 && length > 0) use(at, at + length);
    at += length;
  });
}

export class Picture {
  constructor() {
    this.text = new TokenText(byId('text'), token => this.classOf(token), token => this.describe(token));
    this.timer = 0;
    this.begin(0);
    byId('shade').addEventListener('change', () => {
      byId('picture').classList.toggle('by-ffn', this.byFfn());
      this.draw();
    });
    new ResizeObserver(() => this.drawMap()).observe(byId('map'));
    const map = byId('map');
    map.addEventListener('pointermove', event => this.onMap(event, false));
    map.addEventListener('click', event => this.onMap(event, true));
  }

  // A new prompt, of which nothing is known yet.
  begin(layerCount) {
    this.layerCount = layerCount;
    this.count = 0;
    this.layers = [];         // {kept, ffn: lengths of runs}
    this.depth = {keys: new Uint16Array(0), ffn: new Uint16Array(0), end: null};  // end: with what came back
    this.skipsFfn = false;
    this.finished = false;
    byId('picture').hidden = true;
    byId('picture').classList.remove('by-ffn');
    byId('shade').hidden = true;
    byId('shade').querySelector('input').checked = true;
    byId('picture-note').hidden = false;
    byId('token').textContent = 'Click a word, or use the arrow keys in the text, to see its token.';
  }

  setPieces(pieces) {
    this.count = pieces.length;
    this.depth = {keys: new Uint16Array(this.count), ffn: new Uint16Array(this.count), end: null};
    byId('picture').hidden = false;
    byId('picture-note').hidden = true;
    this.text.set(pieces);
  }

  addLayers(layers) {
    for (const {layer, kept, ffn} of layers) {
      const one = {kept: kept || this.layers[layer - 1].kept};
      one.ffn = ffn || one.kept;
      // In the last layer only the last token's FFN runs, with every method.
      if (ffn && layer + 1 < this.layerCount) this.skipsFfn = true;
      this.layers[layer] = one;
      for (const what of ['keys', 'ffn']) {
        const depth = this.depth[what];
        forRuns(what === 'ffn' ? one.ffn : one.kept, (begin, end) => {
          for (let t = begin; t < end; ++t) ++depth[t];
        });
      }
    }
    this.drawSoon();
  }

  // The account of the whole answer.
  finish(prune) {
    if (!prune.depth || this.count === 0) return;
    const depthsOf = runs => {
      const depths = new Uint16Array(this.count);
      let at = 0;
      for (const [depth, tokens] of runs) depths.fill(depth, at, at += tokens);
      return depths;
    };
    this.depth.keys = depthsOf(prune.depth);
    if (prune.final_depth) this.depth.end = depthsOf(prune.final_depth);
    this.finished = true;
    this.draw();
  }

  what() { return byId('shade').querySelector('input:checked').value; }
  byFfn() { return this.what() === 'ffn'; }
  cameBack(token) { return this.depth.end !== null && this.depth.end[token] > this.depth.keys[token]; }

  shadeOf(depth) { return depth === 0 ? 0 : Math.max(1, Math.round(kShades * depth / this.layerCount)); }

  classOf(token) {
    if (this.layers.length === 0 && !this.finished) return '';
    const shade = 'd' + this.shadeOf(this.depth[this.what()][token]);
    return this.cameBack(token) ? shade + ' back' : shade;
  }

  describe(token) {
    const l = this.layerCount;
    let line = `Token ${number(token + 1)} of ${number(this.count)}, ${JSON.stringify(this.text.pieces[token])}: keys in ` +
        `${this.depth.keys[token]} of ${l} layers`;
    if (this.skipsFfn) line += `, FFN in ${this.depth.ffn[token]}`;
    if (this.cameBack(token)) line += `; brought back for the answer, then keys in ${this.depth.end[token]}`;
    byId('token').textContent = line + '.';
  }

  drawSoon() {
    if (this.timer !== 0) return;
    this.timer = setTimeout(() => this.draw(), kPause);
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = 0;
    byId('shade').hidden = !this.skipsFfn && this.depth.end === null;
    for (const [value, has] of [['ffn', this.skipsFfn], ['end', this.depth.end !== null]])
      byId('shade').querySelector(`[value=${value}]`).parentElement.hidden = !has;
    this.drawMap();
    this.drawLegend();
    this.text.repaint();
  }

  // Share of each bin's tokens that a layer holds.
  shares(lengths, bins) {
    const held = new Float32Array(bins);
    const width = this.count / bins;
    forRuns(lengths, (begin, end) => {
      for (let b = Math.floor(begin / width); b < bins && b * width < end; ++b)
        held[b] += (Math.min(end, (b + 1) * width) - Math.max(begin, b * width)) / width;
    });
    return held;
  }

  drawMap() {
    const canvas = byId('map');
    const width = canvas.clientWidth;
    if (width === 0 || this.count === 0) return;
    const ratio = devicePixelRatio || 1;
    const cell = Math.max(4, Math.min(16, Math.floor(200 / this.layerCount)));
    const height = cell * this.layerCount;
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    const empty = colour('--empty');
    const full = colour(this.byFfn() ? '--ffn' : '--keys');
    const bins = Math.min(this.count, width - kGutter);
    const step = (width - kGutter) / bins;
    for (let l = 0; l < this.layerCount; ++l) {
      g.fillStyle = rgb(empty);
      g.fillRect(kGutter, l * cell, width - kGutter, cell - 1);
      const layer = this.layers[l];
      if (!layer) continue;
      const held = this.shares(this.byFfn() ? layer.ffn : layer.kept, bins);
      for (let b = 0; b < bins;) {
        let end = b + 1;
        while (end < bins && held[end] === held[b]) ++end;
        if (held[b] > 0) {
          g.fillStyle = rgb(mix(empty, full, .25 + .75 * Math.min(1, held[b])));
          g.fillRect(kGutter + b * step, l * cell, (end - b) * step, cell - 1);
        }
        b = end;
      }
    }
    g.fillStyle = rgb(colour('--ink-2'));
    g.font = '12px ' + getComputedStyle(document.body).fontFamily;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    const every = Math.ceil(16 / cell);
    for (let l = 0; l < this.layerCount; l += every) g.fillText(String(l), kGutter - 6, (l + .5) * cell);
    canvas.setAttribute('aria-label', this.summary());
  }

  summary() {
    const parts = this.layers.map((layer, l) => {
      let tokens = 0;
      forRuns(layer.kept, (begin, end) => { tokens += end - begin; });
      return `layer ${l} ${percent(tokens / this.count)}`;
    });
    return `Map of ${this.layerCount} layers by ${number(this.count)} tokens. Share of tokens with keys: ` +
        (parts.length ? parts.join(', ') : 'none yet') + '.';
  }

  drawLegend() {
    const counts = new Map();
    const depths = this.depth[this.what()];
    for (const depth of depths) counts.set(depth, (counts.get(depth) || 0) + 1);
    let groups = [...counts].sort((a, b) => b[0] - a[0]).map(([depth, tokens]) => ({high: depth, low: depth, tokens}));
    if (groups.length > kLegend) {  // one for each shade
      const byShade = new Map();
      for (const group of groups) {
        const shade = this.shadeOf(group.high);
        const same = byShade.get(shade);
        if (same) {
          same.low = group.low;
          same.tokens += group.tokens;
        } else
          byShade.set(shade, group);
      }
      groups = [...byShade.values()];
    }
    const running = this.layers.length < this.layerCount && !this.finished;
    const of = running ? `of ${this.layers.length} so far` : `of ${plural(this.layerCount, 'layer')}`;
    const entries = groups.map(({high, low, tokens}) => {
      const sample = el('span', {class: `sample d${this.shadeOf(high)}`}, high === 0 ? 'word' : '');
      return el('li', {}, sample, `${low === high ? low : low + ' to ' + high} ${of}: ${percent(tokens / this.count)}`);
    });
    if (this.depth.end !== null)
      entries.push(el('li', {}, el('span', {class: 'sample d0 back'}, 'word'), 'brought back for the answer'));
    byId('legend').replaceChildren(...entries);
  }

  onMap(event, isClick) {
    const canvas = byId('map');
    const box = canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - kGutter) / (box.width - kGutter);
    const row = Math.floor((event.clientY - box.top) / box.height * this.layerCount);
    if (share < 0 || share >= 1 || row < 0 || row >= this.layerCount) return;
    const token = Math.floor(share * this.count);
    if (isClick) return this.text.show(token, true);
    byId('token').textContent = `Layer ${row}, token ${number(token + 1)} of ${number(this.count)}.`;
  }
}
