// What became of the prompt in each layer: a map of layers by tokens, the legend, and the text shaded by depth. Fed
// while a prefill runs.

import {cellMap, legend} from '../lib/charts.js';
import {byId, colour, mix, number, percent, plural} from '../lib/dom.js';
import {TokenText} from '../lib/text.js';

const kShades = 8;     // classes d1 to d8 of the style sheet
const kPause = 120;    // ms between two drawings of a running prefill
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
    this.text = new TokenText(
        byId('text'), token => this.classOf(token), token => this.describe(token),
        token => token >= 0 && this.describe(token));
    this.timer = 0;
    this.begin(0);
    byId('shade').addEventListener('change', () => {
      byId('picture').classList.toggle('by-ffn', this.byFfn());
      this.draw();
    });
    new ResizeObserver(() => this.drawMap()).observe(byId('map'));
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
    byId('token').textContent = matchMedia('(hover: none) and (pointer: coarse)').matches ?
        'Touch a word to see its token.' : 'Click a word, or use the arrow keys in the text, to see its token.';
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
    const width = byId('map').clientWidth;
    if (width === 0 || this.count === 0) return;
    const bins = Math.min(this.count, width);
    const held = this.layers.map(layer => this.shares(this.byFfn() ? layer.ffn : layer.kept, bins));
    const empty = colour('--empty');
    const full = colour(this.byFfn() ? '--ffn' : '--keys');
    const shareOf = ({column, row}) => held[row] ? held[row][column] : 0;
    cellMap(byId('map'), {
      left: 48,
      rows: this.layerCount,
      columns: bins,
      cell: Math.max(4, Math.min(16, Math.floor(200 / this.layerCount))),
      xMax: this.count - 1,
      xShift: .5,
      xTitle: 'token',
      yTitle: 'layer',
      label: this.summary(),
      colourOf: (column, row) => {
        const share = Math.min(1, shareOf({column, row}));
        return share > 0 ? mix(empty, full, .25 + .75 * share) : empty;
      },
      describe: cell => `layer ${cell.row}, token ${number(Math.floor(cell.x * this.count) + 1)}\n` +
          (cell.row >= held.length ? 'not computed yet' : `${this.byFfn() ? 'FFN ran on' : 'keys of'} ${percent(shareOf(cell))}`),
      pick: ({x}) => this.text.show(Math.floor(x * this.count), true),
    });
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
    const entries = groups.map(({high, low, tokens}) => ({
      ...(high === 0 ? {sample: 'd0'} : {swatch: {class: 'd' + this.shadeOf(high)}}),
      text: `${low === high ? low : low + ' to ' + high} ${of}: ${percent(tokens / this.count)}`
    }));
    if (this.depth.end !== null) entries.push({sample: 'd0 back', text: 'brought back for the answer'});
    legend(byId('legend'), entries);
  }
}
