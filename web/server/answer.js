// One answer: its text as Markdown, whether it was cut, its account, and a button that copies it.

import {el, number, percent, plural} from '../lib/dom.js';
import {Markdown} from '../lib/markdown.js';
import {say, seconds} from './page.js';

const kPause = 100;  // ms between two renderings of an answer that grows, and as often as takes a tenth of the time

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // without TLS a browser may have no clipboard but this one
    const area = el('textarea', {class: 'hidden', 'aria-hidden': 'true'});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (!done) throw new Error('the browser refuses');
  }
}

function copyButton(answer) {
  const button = el('button', {type: 'button', class: 'small-button copy', hidden: ''}, 'Copy');
  button.addEventListener('click', async () => {
    let text = 'Copied';
    await copy(answer.text).catch(() => { text = 'Not copied'; });
    button.textContent = text;
    say(text + '.');
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    button.focus();
  });
  return button;
}

function readFacts(usage, firstMs, totalMs) {
  const list = [];
  if (firstMs !== null) list.push(['First token', seconds(firstMs)], ['Whole answer', seconds(totalMs)]);
  if (!usage) return list;
  list.push(['Prompt', plural(usage.prompt_tokens, 'token')]);
  const cached = usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens;
  if (cached > 0) list.push(['From the cache', plural(cached, 'token')]);
  return list;
}

// What was read, how soon, and with how much work, in a sentence; '' where nobody knows.
export function readSentence({usage, prune}, firstMs) {
  if (!usage) return '';
  const cached = (usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens) || 0;
  let text = `Read ${plural(usage.prompt_tokens - cached, 'token')}`;
  if (cached > 0) text += `, took ${number(cached)} from the cache`;
  if (firstMs !== null) text += `${cached > 0 ? ', all' : ''} in ${seconds(firstMs)}`;
  const isPruned = prune && prune.active && !prune.fell_back && prune.flops < prune.flops_dense;
  return text + (isPruned ? `; ${percent(prune.flops / prune.flops_dense)} of the work of a full read.` : '.');
}

const kReasons = {
  evicted: 'an earlier prompt with this beginning is no longer kept',
  not_kept: 'an earlier prompt with this beginning was not kept',
  pruned: 'what is kept of this beginning does not fit this method',
};

// Why the prompt was read although an earlier one is like it; null where there is nothing to say.
function reuseFact(cache) {
  const why = kReasons[cache.reason];
  if (!why && cache.reason !== 'differs') return null;
  if (cache.differs_at === undefined) return why;
  const place = `it differs from an earlier prompt from token ${number(cache.differs_at + 1)} on`;
  return el('details', {}, el('summary', {}, why || place), ...(why ? [el('div', {}, place)] : []),
            el('div', {class: 'difference'}, 'Earlier: ' + JSON.stringify(cache.earlier)),
            el('div', {class: 'difference'}, 'Now: ' + JSON.stringify(cache.now)));
}

function pruneFacts(usage, prune) {
  const kept = prune.kept_per_layer;
  const share = kept.reduce((sum, tokens) => sum + tokens, 0) / (kept.length * usage.prompt_tokens);
  const saved = Math.max(0, 1 - prune.flops / prune.flops_dense);
  if (share === 1 && saved === 0) return [];
  const list = [['Prefill', percent(share) + ' of token-layers'], ['FLOPs saved, answer included', percent(saved)]];
  if (prune.revived > 0) list.push(['Brought back', plural(prune.revived, 'token')]);
  return list;
}

// With all its keys a method takes lines.
function methodFact(spec) {
  const names = spec.split('+').map(part => part.split(':')[0]).join('+');
  return names === spec ? spec : el('details', {}, el('summary', {}, names), spec);
}

function facts({usage, timings, prune}, firstMs, totalMs) {
  const list = readFacts(usage, firstMs, totalMs);
  const why = timings && timings.cache && reuseFact(timings.cache);
  if (why) list.push(['Read again', why]);
  if (prune && usage) list.push(...pruneFacts(usage, prune));
  if (usage) list.push(['Answer', plural(usage.completion_tokens, 'token')]);
  if (timings && timings.predicted_per_second > 0)
    list.push(['Speed', timings.predicted_per_second.toFixed(1) + ' tokens/s']);
  if (prune) list.push(['Method', methodFact(prune.spec)]);
  if (prune && prune.auto) list.push(['Why', prune.auto]);
  return el('dl', {class: 'facts'}, ...list.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

const kQuotes = 3;  // at once; the others behind "more"

function quotes(texts, show) {
  const items = texts.map((text, index) => {
    const button = el('button', {type: 'button', class: 'quote', title: 'Show it in the document'}, text);
    button.addEventListener('click', () => show(index, button));
    return el('li', {}, button);
  });
  const more = items.slice(kQuotes);
  return el('section', {class: 'passages'}, el('h3', {}, 'Where to look in the document'),
            el('p', {class: 'note'}, 'Passages that the model carried to its last layers, closest to the question first.'),
            el('ul', {}, ...items.slice(0, kQuotes)),
            ...(more.length === 0 ? [] : [el('details', {}, el('summary', {}, `${more.length} more`), el('ul', {}, ...more))]));
}

export class AnswerView {
  constructor(title) {
    this.text = '';
    this.firstMs = null;  // until the first token
    this.totalMs = 0;
    this.copy = copyButton(this);
    this.body = el('div', {class: 'answer'});
    this.markdown = new Markdown(this.body);
    this.node = el('section', {class: 'column'}, el('div', {class: 'who'}, el('span', {}, title), this.copy), this.body);
    this.timer = 0;
    this.drawMs = 0;
    this.thought = null;
    this.steps = [];  // what was done with the answer after its text, to do it again after a reload
    this.title = title;
  }

  // What a reload keeps of the answer, and the answer from that.
  state() {
    const {title, text, firstMs, steps} = this;
    return {title, text, firstMs, steps, thought: this.thought && this.thought.textContent};
  }
  static from({title, text, firstMs, steps, thought}) {
    const view = new AnswerView(title);
    if (thought) view.think(thought);
    view.text = text;
    view.copy.hidden = text === '';
    view.firstMs = firstMs;
    view.draw();
    for (const [name, ...values] of steps) view.after(name, ...values);
    return view;
  }

  // One step after the text: finish, stopped, fail.
  after(name, ...values) {
    this.steps.push([name, ...values]);
    this[name](...values);
  }

  // The server's own words; what is there of the answer is not whole.
  fail(message) {
    if (this.text !== '') this.cut('The answer is not whole.');
    this.note(message, 'failed');
  }

  // What the model thinks, folded above its answer.
  think(text) {
    if (this.thought === null) {
      this.thought = el('div');
      this.body.before(el('details', {class: 'thinking'}, el('summary', {}, 'Thinking'), this.thought));
    }
    this.thought.append(text);
  }

  add(text) {
    if (this.text === '') text = text.trimStart();  // most models begin with a space
    this.text += text;
    this.copy.hidden = this.text === '';
    if (this.timer === 0) this.timer = setTimeout(() => this.draw(), Math.max(kPause, 10 * this.drawMs));
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = 0;
    const begin = performance.now();
    this.markdown.set(this.text);
    this.drawMs = performance.now() - begin;
  }

  note(text, name = 'note') { this.node.append(el('p', {class: name}, text)); }

  // The answer breaks off here, and `why`.
  cut(why) {
    this.draw();
    this.body.classList.add('cut');
    this.note(why, 'note cut-note');
  }

  // Quotes of the document, best first. `show(index, button)` is called at a click on one.
  quote(texts, show) {
    if (texts.length > 0) this.figures.before(quotes(texts, show));
  }

  // `end`: {usage, timings, prune, finish: the reason}. `most`: tokens that the request allowed, or -1.
  finish(end, totalMs, most) {
    this.draw();
    this.totalMs = totalMs;
    if (end.finish === 'length') {
      const full = most < 0 || (end.usage && end.usage.completion_tokens < most);
      this.cut(full ? 'Cut: the context is full.' :
                      `Cut after ${plural(most, 'token')}, the longest answer that the settings allow.`);
    }
    const read = readSentence(end, this.firstMs);
    if (read !== '') this.note(read, 'read');
    this.figures = el('details', {class: 'figures'}, el('summary', {}, 'Figures'), facts(end, this.firstMs, totalMs));
    this.node.append(this.figures);
    if (end.prune && end.prune.reason) this.note(end.prune.reason);
  }

  stopped() {
    if (this.text === '') return this.note('Stopped.');
    this.cut('Stopped: the answer is not whole.');
  }
}

// What readers see of an answer: its text, with a line for each block, and the text nodes with their places in it.
function shown(body) {
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  const nodes = [];
  let text = '';
  let last = null;
  for (let node; (node = walker.nextNode());) {
    const block = node.parentElement.closest('p, li, h3, h4, h5, h6, pre, blockquote, td, th');
    if (last !== null && block !== last) text += '\n';
    last = block;
    nodes.push({node, begin: text.length});
    text += node.data;
  }
  return {body, text, nodes};
}

// Marks the word that begins there, or the answer's end.
function markWord({body, nodes}, at) {
  const place = nodes.find(({node, begin}) => at < begin + node.length);
  if (!place) return body.append(el('mark', {class: 'ends'}, 'ends here'));
  const word = place.node.splitText(Math.max(0, at - place.begin));
  const length = /^\s*\S*/.exec(word.data)[0].length;
  if (length < word.length) word.splitText(length);
  const mark = el('mark');
  word.replaceWith(mark);
  mark.append(word);
}

// Where two answers first differ, as readers see them; both get a mark there. Returns what is to be said.
export function markDifference(a, b) {
  const both = [shown(a.body), shown(b.body)];
  const [one, other] = both.map(({text}) => text);
  if (one === other) return 'Both answers are the same, word for word.';
  let at = 0;
  while (at < one.length && one[at] === other[at]) ++at;
  const between = [one, other].every(text => at >= text.length || /\s/.test(text[at]));
  while (!between && at > 0 && /\S/.test(one[at - 1])) --at;  // the whole word
  for (const view of both) markWord(view, at);
  const words = one.slice(0, at).split(/\s+/).filter(word => word !== '').length;
  return `The answers first differ at word ${number(words + 1)}, which is marked.`;
}
