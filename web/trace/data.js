// The trace by tokens: indices 0 .. promptTokens-1 are the prompt, the answer follows.

export const data = JSON.parse(document.getElementById('trace').textContent);
export const layerCount = data.layers.length;
export const stepCount = data.steps.length;
export const promptTokens = data.promptTokens;
export const tokenCount = data.texts.length;

// "0-99,120" as [0, 100, 120, 121]: begin and end of every run.
function parseRanges(text) {
  const runs = [];
  if (text === '') return runs;
  for (const part of text.split(',')) {
    const dash = part.indexOf('-');
    const first = Number(dash < 0 ? part : part.slice(0, dash));
    runs.push(first, Number(dash < 0 ? part : part.slice(dash + 1)) + 1);
  }
  return runs;
}

function sizeOf(runs) {
  let size = 0;
  for (let i = 0; i < runs.length; i += 2) size += runs[i + 1] - runs[i];
  return size;
}

// If an input selection packed the prompt, positions differ from prompt tokens.
const entered = data.entered === null ? null : (() => {
  const runs = parseRanges(data.entered);
  const tokens = new Int32Array(sizeOf(runs));
  let n = 0;
  for (let i = 0; i < runs.length; i += 2)
    for (let t = runs[i]; t < runs[i + 1]; ++t) tokens[n++] = t;
  return tokens;
})();
const promptPositions = entered ? entered.length : promptTokens;

function tokenOf(position) {
  if (!entered) return position;
  return position < promptPositions ? entered[position] : promptTokens + position - promptPositions;
}

// -1 for a token that has none.
export function positionOf(token) {
  if (!entered) return token;
  if (token >= promptTokens) return promptPositions + token - promptTokens;
  let low = 0;
  let high = promptPositions;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entered[middle] < token)
      low = middle + 1;
    else
      high = middle;
  }
  return low < promptPositions && entered[low] === token ? low : -1;
}

// Runs of positions as runs of tokens.
function tokenRuns(text) {
  const runs = parseRanges(text);
  if (!entered) return runs;
  const out = [];
  for (let i = 0; i < runs.length; i += 2) {
    for (let p = runs[i]; p < runs[i + 1]; ++p) {
      const token = tokenOf(p);
      if (out.length && out[out.length - 1] === token)
        out[out.length - 1] = token + 1;
      else
        out.push(token, token + 1);
    }
  }
  return out;
}

// {kept, ffn: runs of tokens; rows, keptCount, ffnCount, density, heads; computed: runs by process, or []}
export const layers = [];
for (const layer of data.layers) {
  const kept = layer.kept === null ? layers[layers.length - 1].kept : tokenRuns(layer.kept);
  const ffn = layer.ffn === null ? kept : tokenRuns(layer.ffn);
  layers.push({
    kept,
    ffn,
    rows: layer.rows,
    keptCount: sizeOf(kept),
    ffnCount: sizeOf(ffn),
    density: layer.density,
    heads: layer.heads,
    computed: (layer.computed || []).map(tokenRuns)
  });
}

// The processes that computed a layer's keys of the tokens first to last; [] where there was one.
export function processesOf(layer, first, last) {
  const found = [];
  layers[layer].computed.forEach((runs, process) => {
    for (let i = 0; i < runs.length; i += 2) {
      if (runs[i] > last || runs[i + 1] <= first) continue;
      found.push(process);
      break;
    }
  });
  return found;
}

export const kinds = ['revived', 'loaded', 'offloaded', 'dropped', 'evicted'];
const eventsOfLayer = layers.map(() => []);  // {step, kind, runs}; step 1 is the first after prefill
export const kindTotals = Object.fromEntries(kinds.map(kind => [kind, 0]));
export const steps = data.steps.map((step, i) => {
  const counts = Object.fromEntries(kinds.map(kind => [kind, 0]));
  for (const [layer, kind, ranges] of step.events) {
    const runs = tokenRuns(ranges);
    eventsOfLayer[layer].push({step: i + 1, kind, runs});
    counts[kind] += sizeOf(runs);
  }
  for (const kind of kinds) kindTotals[kind] += counts[kind];
  return {token: tokenOf(step.position), attended: step.attended, bytes: step.bytes, counts};
});
export const hasHeads = layers.some(layer => layer.heads.length > 0);
export const hasCold = kindTotals.offloaded > 0;
export const ffnDiffers = layers.slice(0, -1).some(layer => layer.ffn !== layer.kept);

// State of a token in a layer.
export const HELD = 1;     // its key is there
const REVIVED = 2;  // its key was computed during decode
const COLD = 4;     // its key lies in the cold tier
// What happened to it in the step shown.
export const MARK = {
  revived: 1,
  loaded: 2,
  offloaded: 4,
  dropped: 8,
  evicted: 16,
  past: 32
};

function forRuns(runs, action) {
  for (let i = 0; i < runs.length; i += 2)
    for (let t = runs[i]; t < runs[i + 1]; ++t) action(t);
}

// Writes the state of every token in one layer after `step` (0: after prefill) to `out`, and adds what
// happened in that step to `marks`, if given.
export function layerState(layer, step, what, out, marks) {
  out.fill(0);
  const runs = what === 'ffn' ? layers[layer].ffn : layers[layer].kept;
  for (let i = 0; i < runs.length; i += 2) out.fill(HELD, runs[i], runs[i + 1]);
  for (let s = 0; s < step; ++s) out[steps[s].token] = HELD;
  for (const event of eventsOfLayer[layer]) {
    if (event.step > step) break;
    if (what !== 'ffn') {
      if (event.kind === 'revived')
        forRuns(event.runs, t => {
          out[t] = HELD | REVIVED;
        });
      else if (event.kind === 'loaded')
        forRuns(event.runs, t => {
          out[t] &= ~COLD;
        });
      else if (event.kind === 'offloaded')
        forRuns(event.runs, t => {
          out[t] |= COLD;
        });
      else if (event.kind === 'evicted')
        forRuns(event.runs, t => {
          out[t] = 0;
        });
    }
    if (!marks) continue;
    if (event.step === step)
      forRuns(event.runs, t => {
        marks[t] |= MARK[event.kind];
      });
    else if (event.kind === 'revived')
      forRuns(event.runs, t => {
        marks[t] |= MARK.past;
      });
  }
}

// Over all layers: the number that hold the token (depth), what happened to it, and, in `bins` columns of
// tokens, the share of each layer that is held, revived and cold: [layers * bins] each.
export function overview(step, what, bins) {
  const depth = new Uint16Array(tokenCount);
  const marks = new Uint8Array(tokenCount);
  const state = new Uint8Array(tokenCount);
  const map = {
    held: new Float32Array(layerCount * bins),
    revived: new Float32Array(layerCount * bins),
    cold: new Float32Array(layerCount * bins)
  };
  const shown = promptTokens + step;
  for (let l = 0; l < layerCount; ++l) {
    layerState(l, step, what, state, marks);
    for (let t = 0; t < tokenCount; ++t)
      if (state[t] & HELD) ++depth[t];
    for (let b = 0; b < bins; ++b) {
      const begin = Math.floor(b * shown / bins);
      const end = Math.max(begin + 1, Math.floor((b + 1) * shown / bins));
      let held = 0, revived = 0, cold = 0;
      for (let t = begin; t < end; ++t) {
        held += state[t] & HELD;
        revived += (state[t] & REVIVED) >> 1;
        cold += (state[t] & COLD) >> 2;
      }
      map.held[l * bins + b] = held / (end - begin);
      map.revived[l * bins + b] = revived / (end - begin);
      map.cold[l * bins + b] = cold / (end - begin);
    }
  }
  return {depth, marks, map, shown};
}
