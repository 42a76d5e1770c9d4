// The conversation: one question at a time, asked once, or twice to compare with a dense run.

import {AnswerView, markDifference} from './answer.js';
import {events} from './api.js';
import {byId, el} from '../lib/dom.js';
import {problem, say, seconds} from './page.js';
import {choosePassages} from './passages.js';
import {Progress} from './progress.js';

// Where the page is one column, the newest answer comes to the top.
const isNarrow = matchMedia('(max-width: 1019px)');

// What of an answer's end its account needs: without the lists that are as long as the prompt.
function forAccount({usage, timings, prune, finish}) {
  if (!prune) return {usage, timings, finish};
  const {depth, final_depth, ffn_depth, ...account} = prune;
  return {usage, timings, prune: account, finish};
}

export class Conversation {
  // `completing` shows the read that completes itself, `view` passages in the document.
  constructor(settings, picture, completing, view) {
    this.settings = settings;
    this.picture = picture;
    this.completing = completing;
    this.view = view;
    this.layerCount = 0;
    this.running = null;  // AbortController
    this.isBlocked = false;
    this.changed = () => {};  // called when there is more or less to keep
    this.restart();
    byId('ask').addEventListener('submit', event => {
      event.preventDefault();
      this.ask();
    });
    byId('question').addEventListener('keydown', event => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.ask();
    });
    byId('stop').addEventListener('click', () => this.stop());
    byId('restart').addEventListener('click', () => {
      this.restart();
      byId('question').focus();
    });
    document.addEventListener('keydown', event => {
      if (event.key === 'Escape') this.stop();
    });
  }

  restart() {
    this.stop();
    this.turns = [];  // {question, answer} about `document`
    this.document = '';
    this.shown = [];  // {question, about: the document, views, passages: of the first, isDone}, oldest first
    this.changed();
    for (const id of ['log', 'earlier']) byId(id).replaceChildren();
    byId('earlier-card').hidden = true;
    byId('log-card').hidden = true;
    byId('restart').hidden = true;
    this.completing.end();
  }

  stop() {
    if (this.running) this.running.abort();
  }

  // Whether a question would be refused: the plan says why.
  block(isBlocked) {
    this.isBlocked = isBlocked;
    byId('send').disabled = isBlocked || this.running !== null;
  }

  // What was said of this document.
  turnsAbout(document) { return document === this.document ? this.turns : []; }

  // The prompt of a question as the fields of a request. What was said of another document is not sent.
  prompt(document, question) {
    if (!this.settings.hasTemplate) return {prompt: this.settings.promptOf(document, question)};
    const messages = [];
    for (const turn of [...this.turnsAbout(document), {question}]) {
      messages.push({role: 'user', content: turn.question});
      if (turn.answer !== undefined) messages.push({role: 'assistant', content: turn.answer});
    }
    if (document !== '') messages[0].content = document + '\n\n' + messages[0].content;
    return {messages};
  }

  request(document, question) {
    const body = {
      ...this.settings.request(document),
      ...this.prompt(document, question),
      stream: true,
      stream_options: {include_usage: true},
      return_progress: true,
      return_prompt_pieces: true,
      return_prune_depth: true,
    };
    if (this.settings.hasTemplate) return {path: 'v1/chat/completions', body};
    body.stop = question === '' ? [] : ['\nQuestion:'];
    return {path: 'v1/completions', body};
  }

  async ask() {
    if (this.running || this.isBlocked) return;
    const text = byId('document').value;
    const question = byId('question').value.trim();
    problem('');
    if (text === '' && question === '') {
      byId('question').focus();
      return problem('Say what you want to know, or give a document to continue.');
    }
    let request;
    try {
      request = this.request(text, question);
    } catch (error) {
      return problem(error.message);
    }
    if (text !== this.document) this.turns = [];
    this.document = text;
    const compares = byId('compare').checked;
    const turn = this.newTurn(question, compares);
    this.setRunning(new AbortController());
    this.completing.end();
    this.completing.before();
    this.picture.begin(this.layerCount);
    const isAnswered = await this.answer(request, turn, compares);
    if (isAnswered)
      this.turns.push({question, answer: turn.views[0].text});
    else if (turn.views[0].text === '' && byId('question').value === '')
      byId('question').value = question;
    turn.isDone = true;
    this.setRunning(null);
    this.changed();
  }

  // What a reload keeps; a question that has no answer yet is one to be asked.
  state(refer) {
    const turns = this.shown.filter(turn => turn.isDone).map(({question, about, views, passages}) => (
        {question, passages, about: about === undefined ? -1 : refer(about), views: views.map(view => view.state())}));
    const waiting = this.shown.find(turn => !turn.isDone);
    const question = byId('question').value || (waiting ? waiting.asked : '');
    return {turns, question, chat: this.turns, document: refer(this.document)};
  }

  restore({turns, question, chat, document}, documents) {
    for (const {question: asked, about, views, passages} of turns) {
      const turn = this.showTurn(asked, views.map(view => AnswerView.from(view)), documents[about]);
      turn.isDone = true;
      if (turn.about) this.showPassages(turn, passages);  // else the document was too large to be kept
      if (views.length === 2 && views[1].steps.some(([name]) => name === 'finish')) this.compare(turn);
    }
    if (documents[document] !== undefined) [this.turns, this.document] = [chat, documents[document]];
    byId('question').value = question;
    byId('restart').hidden = turns.length === 0;
  }

  // Fills the turn's views one after the other; whether the first is whole. Both runs of a comparison read the whole
  // prompt, so that their times compare, and take the same random numbers.
  async answer(request, turn, compares) {
    const [first, dense] = turn.views;
    if (!compares) {
      const end = await this.receive(request, first, '', true);
      if (end) this.quote(turn, end);
      if (end) this.completing.watch(request.body, end, this.document);
      return end !== null;
    }
    const body = {...request.body, cache_prompt: false, seed: Math.floor(Math.random() * 2 ** 31)};
    body.prune = {...body.prune, complete: false};
    const pruned = await this.receive({...request, body}, first, 'Pruned', true);
    if (!pruned) {
      dense.after('note', 'Not asked.');
      return false;
    }
    this.quote(turn, pruned);
    const end = await this.receive({...request, body: {...body, prune: 'none'}}, dense, 'Dense', false);
    if (end) this.compare(turn);
    return true;
  }

  // The passages of the document that stayed deepest, under the first view. A dense answer has none.
  quote(turn, {pieces, prune}) {
    if (!pieces || !prune || !prune.active || prune.fell_back || !prune.depth) return;
    const {about: text, question, views: [view]} = turn;
    const depths = prune.depth.flatMap(([depth, tokens]) => new Array(tokens).fill(depth));
    this.showPassages(turn, choosePassages({document: text, pieces, depths, asked: `${question} ${view.text}`}));
  }

  showPassages(turn, passages) {
    const {about: text, views: [view]} = turn;
    turn.passages = passages;
    view.quote(passages.map(({begin, end}) => text.slice(begin, end)),
               (index, button) => this.view.show(text, passages, index, button));
  }

  compare({node, views: [first, dense]}) {
    const factor = dense.totalMs / first.totalMs;
    const text = `${markDifference(first, dense)} The pruned one took ${seconds(first.totalMs)}, the dense one ` +
        `${seconds(dense.totalMs)}, ${factor.toFixed(factor < 10 ? 1 : 0)} times as long.`;
    node.append(el('p', {class: 'verdict'}, text));
    say(text);
  }

  newTurn(asked, compares) {
    const titles = compares ? ['Pruned', 'Dense'] : ['Answer'];
    const turn = this.showTurn(asked || '(continue the text)', titles.map(title => new AnswerView(title)), this.document);
    turn.asked = asked;
    byId('question').value = '';
    say('The question is on its way.');
    if (isNarrow.matches) byId('log-card').scrollIntoView();
    return turn;
  }

  // The newest turn is on top; the others are the earlier ones.
  showTurn(question, views, about) {
    const node = el('article', {class: 'turn'}, el('p', {class: 'question'}, question),
                    el('div', {class: 'columns'}, ...views.map(view => view.node)));
    byId('earlier').prepend(...byId('log').childNodes);
    byId('earlier-card').hidden = byId('earlier').childElementCount === 0;
    byId('log').append(node);
    byId('log-card').hidden = false;
    const turn = {question, about, views, node, passages: [], isDone: false};
    this.shown.push(turn);
    return turn;
  }

  // Returns the answer's end, or null where it was stopped or failed, which the view then says.
  async receive(request, view, what, isPictured) {
    const progress = new Progress(this.layerCount, what);
    try {
      const end = await this.readEvents(request, view, progress, isPictured);
      view.after('finish', forAccount(end), performance.now() - progress.begin, request.body.max_tokens ?? -1);
      say(`${what} Answer: ${view.text.slice(0, 2000)}`);
      return end;
    } catch (error) {
      this.fail(error, view);
      return null;
    } finally {
      progress.end();
    }
  }

  async readEvents({path, body}, view, progress, isPictured) {
    const end = {};  // usage, timings, prune, finish, pieces
    for await (const event of events(path, body, this.running.signal)) {
      if (event.prompt_pieces) end.pieces = event.prompt_pieces;
      if (isPictured && event.prompt_pieces) this.picture.setPieces(event.prompt_pieces);
      if (isPictured && event.prompt_layers) this.picture.addLayers(event.prompt_layers);
      if (event.prompt_progress) progress.add(event.prompt_progress);
      for (const name of ['usage', 'timings', 'prune']) {
        if (event[name]) end[name] = event[name];
      }
      const choice = event.choices && event.choices[0];
      if (choice && choice.finish_reason) end.finish = choice.finish_reason;
      const text = (choice && (choice.delta ? choice.delta.content : choice.text)) || '';
      const thought = (choice && choice.delta && choice.delta.reasoning_content) || '';
      if (text === '' && thought === '') continue;
      if (view.firstMs === null) {
        view.firstMs = performance.now() - progress.begin;
        progress.answer();
        say('First token after ' + seconds(view.firstMs));
      }
      if (thought !== '') view.think(thought);
      if (text !== '') view.add(text);
    }
    if (isPictured && end.prune) this.picture.finish(end.prune);
    return end;
  }

  // A stop is no failure.
  fail(error, view) {
    if (error.name === 'AbortError') {
      view.after('stopped');
      say('Stopped.');
      return;
    }
    view.after('fail', error.message);
    problem(error.message);
  }

  setRunning(controller) {
    this.running = controller;
    const buttons = [byId('send'), byId('stop')];
    const hadFocus = buttons.includes(document.activeElement);
    this.block(this.isBlocked);
    byId('progress').hidden = controller === null;
    byId('restart').hidden = controller !== null || byId('log').childElementCount === 0;
    if (hadFocus) (controller ? byId('stop') : byId('question')).focus();
  }
}
