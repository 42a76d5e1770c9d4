// The same question, answered densely, beside a pruned answer.

import {events} from './api.js';
import {el, number} from '../lib/dom.js';
import {seconds} from './page.js';

// Where two texts first differ; their common length if one begins the other.
export function firstDifference(a, b) {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) ++at;
  return at;
}

function marked(text, from) {
  return from >= text.length ? [text] : [text.slice(0, from), el('mark', {}, text.slice(from))];
}

const spent = ms => `first token after ${seconds(ms)}`;

// Asks `request` with no pruning. Calls `progress` with {processed, total}. Returns {text, first}.
async function askDensely({path, body}, signal, progress) {
  const begin = performance.now();
  let text = '';
  let first = null;
  const dense = {...body, prune: {spec: 'none'}, return_prune_depth: false, return_prompt_pieces: false};
  for await (const event of events(path, dense, signal)) {
    if (event.prompt_progress) progress(event.prompt_progress);
    const choice = event.choices && event.choices[0];
    const more = (choice && (choice.delta ? choice.delta.content : choice.text)) || '';
    if (more !== '' && first === null) first = performance.now() - begin;
    text += more;
  }
  return {text: text.trimStart(), first: first === null ? performance.now() - begin : first};
}

// The two columns, with the rest of the texts marked from the first difference on.
function columns(pruned, dense, spec) {
  const at = firstDifference(pruned.answer, dense.text);
  const same = at === pruned.answer.length && at === dense.text.length;
  const column = (name, time, text) => el('div', {}, el('p', {class: 'who'}, name), el('p', {class: 'note'}, spent(time)),
                                          el('p', {class: 'plain'}, ...marked(text, same ? text.length : at)));
  const verdict = same ? 'Both answers are the same text.' : `The answers differ from character ${number(at + 1)} on.`;
  return el('div', {class: 'compare'}, el('p', {class: 'note'}, verdict),
            el('div', {class: 'columns'}, column(spec, pruned.first, pruned.answer), column('Dense', dense.first, dense.text)));
}

// Adds a button to the turn, which asks once more. `run` calls its function with an AbortSignal while the page shows
// that something runs.
export function offerDense(turn, request, spec, run) {
  const button = el('button', {type: 'button', class: 'small'}, 'Ask densely too');
  button.addEventListener('click', async () => {
    button.disabled = true;
    const done = await run(turn, signal => askDensely(request, signal, progress => turn.progress.add(progress)));
    button.disabled = false;
    if (done) button.replaceWith(columns(turn, done, spec));
  });
  turn.actions.append(button);
}
