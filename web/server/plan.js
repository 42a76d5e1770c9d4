// What a question will cost, said before it is asked: the tokens of its prompt, and whether the method will prune it or
// stand aside. The server counts and decides (POST /tokenize, /plan); this only asks it, when nobody types.

import {post} from './api.js';
import {byId, number, plural} from '../lib/dom.js';

const kPause = 500;          // ms without a key
const kQuiet = 60 * 1000;    // ms without asking, after the server had too many requests of this client
const kSample = 400 * 1000;  // characters: a longer document is estimated from its beginning

const kDoubt = 1.03;         // an estimate may be this far off

// `spec` with min=0 in every method.
export function withoutLeast(spec) {
  return spec.split('+').map(part => {
    const [name, keys = ''] = part.split(/:(.*)/s);
    const others = keys.split(',').filter(key => key !== '' && !/^min=/.test(key));
    return `${name}:${[...others, 'min=0'].join(',')}`;
  }).join('+');
}

export class Plan {
  constructor(settings, conversation, documents) {
    this.settings = settings;
    this.conversation = conversation;
    this.documents = documents;
    this.context = 0;  // the server's, in tokens; 0: not connected
    this.counted = {text: '', tokens: 0, isExact: true};
    this.timer = 0;
    this.controller = null;
    this.quietUntil = 0;
    this.refused = null;  // the text of the document that is too long
    for (const id of ['question', 'method-card']) byId(id).addEventListener('input', () => this.schedule());
    byId('prune-anyway').addEventListener('click', () => {
      this.settings.set(this.offered);
      this.hideOffer();
      this.schedule();
      byId('question').focus();
    });
  }

  schedule() {
    clearTimeout(this.timer);
    if (this.controller) this.controller.abort();
    this.controller = null;
    if (this.documents.text() === '' && byId('question').value === '') this.show('');
    if (this.refused !== this.documents.text()) this.refuse(null);  // another one, until it is counted
    if (this.context > 0 && performance.now() > this.quietUntil) this.timer = setTimeout(() => this.update(), kPause);
  }

  // A server that refuses to count (no key, too many requests) is no problem yet: it will say so to the question.
  async update() {
    const {signal} = this.controller = new AbortController();
    try {
      await this.countDocument(signal);
      if (this.conversation.running) return;
      const question = byId('question').value.trim();
      if (this.documents.text() === '' && question === '') return this.show('');
      const tokens = this.counted.tokens + await this.countRest(question, signal);
      if (tokens > this.context) return this.showTooLong(tokens);
      this.refuse(null);
      await this.showPlan(tokens, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.refuse(null);
      if (error.status === 429) this.quietUntil = performance.now() + kQuiet;
      this.show('');
    }
  }

  async countDocument(signal) {
    const text = this.documents.text();
    if (this.counted.text !== text) {
      let sample = text.slice(0, kSample);
      if (/[\ud800-\udbff]$/.test(sample)) sample = sample.slice(0, -1);  // half a character
      const body = {content: sample, parse_special: !this.settings.hasTemplate};  // messages of a chat are text
      const {count} = sample === '' ? {count: 0} : await post('tokenize', body, signal);
      const isExact = sample.length === text.length;
      this.counted = {text, isExact, tokens: isExact ? count : Math.round(count * text.length / sample.length)};
    }
    this.documents.showSize(this.counted);
  }

  // What the question, earlier turns and the chat template add.
  async countRest(question, signal) {
    const prompt = this.conversation.prompt(this.documents.text(), question);
    if (prompt.prompt !== undefined) {
      const rest = this.settings.promptOf('', question);
      return rest === '' ? 1 : (await post('tokenize', {prompt: rest}, signal)).count;
    }
    const messages = prompt.messages.map(message => ({...message}));
    messages[0].content = messages[0].content.slice(this.documents.text().length);
    return (await post('v1/messages/count_tokens', {messages}, signal)).input_tokens;
  }

  hasTurns() { return this.settings.hasTemplate && this.conversation.turnsAbout(this.documents.text()).length > 0; }

  // Asking is of no use then, unless the count is an estimate that may be wrong.
  showTooLong(tokens) {
    const isSure = this.counted.isExact || tokens > kDoubt * this.context;
    const about = plural(tokens - this.context, 'token');
    const rest = `the prompt has about ${number(tokens)}, and the context holds ${number(this.context)}`;
    const way = this.hasTurns() ? 'Shorten the document, or begin a new conversation.' : 'Shorten the document or the question.';
    this.show(`${isSure ? 'Too long' : 'Perhaps too long'} by about ${about}: ${rest}. ${way}`);
    if (isSure) this.refuse(this.documents.text());
  }

  // `text`: the document that is too long, or null.
  refuse(text) {
    this.refused = text;
    byId('plan').classList.toggle('warning', text !== null);
    this.conversation.block(text !== null);
  }

  async showPlan(tokens, signal) {
    let prune;
    try {
      ({prune} = this.settings.request(this.documents.text()));
    } catch {
      return this.show('');  // the question will say what is wrong
    }
    const about = `The prompt has about ${plural(tokens, 'token')}${this.hasTurns() ? ' with the conversation so far' : ''}`;
    const plan = await post('plan', {prompt_tokens: tokens, prune}, signal);
    const isComplete = prune.complete && this.conversation.completing.document === this.documents.text();
    if (plan.active && isComplete)
      return this.show(`${about}; the read of the document is complete, so the answer will be dense.`);
    if (plan.active) return this.show(`${about}; the method will prune it${plan.reason ? `, but: ${plan.reason}` : ''}.`);
    const reason = plan.reason || plan.auto || '';
    if (reason === '' && byId('method').value === 'none') return this.show(`${about}; all of it will be computed.`);
    const why = reason === '' ? "the server's choice is to prune nothing" : reason;
    await this.offer(`${about}; nothing will be pruned: ${why}.`, plan, tokens, signal);
  }

  // Shows `text` and, if there is a way to prune this prompt, a button for it.
  async offer(text, plan, tokens, signal) {
    const own = this.settings.spec() === 'default' ? this.settings.fallback : this.settings.spec();
    const candidates = /^(none|auto)\b/.test(own) ? ['coppice', 'coppice:min=0'] : [withoutLeast(own)];
    for (const spec of candidates) {
      const other = await post('plan', {prompt_tokens: tokens, prune: spec}, signal).catch(() => null);
      if (signal.aborted) return;
      if (other && other.active) return this.show(text, spec);
    }
    this.show(text);
  }

  show(text, offered = '') {
    byId('plan').textContent = text;
    this.offered = offered;
    byId('prune-anyway').hidden = offered === '';
    byId('prune-anyway').textContent = `Prune anyway: ${offered}`;
  }

  hideOffer() { this.show(byId('plan').textContent); }
}
