// The conversation: one request at a time, its progress, its answer and its account.

import {events, get} from './api.js';
import {offerDense} from './compare.js';
import {byId, el, number, percent, plural} from '../lib/dom.js';
import {markdown} from '../lib/markdown.js';
import {problem, say, seconds} from './page.js';

const kTick = 200;     // ms between two texts of the clock
const kPoll = 500;     // ms between two looks at a read that completes itself
const kWindow = 3000;  // ms of progress that the rest is reckoned from

// How far a prefill is, and how long the rest takes at its latest speed: pruned layers are faster than those before.
class Progress {
  constructor(layerCount) {
    this.layerCount = layerCount;
    this.begin = performance.now();
    this.points = [];
    this.told = 0;  // quarters
    this.answering = false;
    byId('bar').removeAttribute('value');  // waiting: neither far nor near
    this.timer = setInterval(() => this.show(), kTick);
    this.show();
  }

  add({processed, total, cache}) {
    this.last = {share: processed / total, total, cache};
    const now = performance.now();
    this.points.push({time: now, share: this.last.share});
    while (this.points.length > 2 && now - this.points[1].time > kWindow) this.points.shift();
    byId('bar').value = this.last.share;
    const quarters = Math.floor(4 * this.last.share);
    if (quarters > this.told) {
      this.told = quarters;
      say(`${25 * quarters} % of the prompt read`);
    }
    this.show();
  }

  rest(now) {
    const {time, share} = this.points[0];
    const speed = (this.last.share - share) / (this.points.at(-1).time - time);
    if (!(speed > 0)) return null;
    return Math.max(0, (1 - this.last.share) / speed - (now - this.points.at(-1).time));
  }

  show() {
    const now = performance.now();
    const passed = seconds(now - this.begin);
    let text = `Waiting for the server, ${passed}`;
    if (this.answering)
      text = `Answering, ${passed}`;
    else if (this.last) {
      const layer = Math.min(this.layerCount, 1 + Math.floor(this.last.share * this.layerCount));
      text = `Reading ${plural(this.last.total, 'token')}: layer ${layer} of ${this.layerCount}, ${percent(this.last.share)}, ${passed}`;
      if (this.last.cache > 0) text += `, ${number(this.last.cache)} tokens from the cache`;
      const rest = this.rest(now);
      if (rest !== null && this.last.share < 1) text += `, about ${seconds(rest)} left`;
    }
    byId('progress-text').textContent = text;
  }

  answer() {
    this.answering = true;
    byId('bar').value = 1;
    this.show();
  }

  end() { clearInterval(this.timer); }
}

function facts(usage, timings, prune, firstMs) {
  const list = [];
  if (firstMs !== null) list.push(['First token', seconds(firstMs)]);
  if (usage) {
    list.push(['Prompt', plural(usage.prompt_tokens, 'token')]);
    const cached = usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens;
    if (cached > 0) list.push(['From the cache', plural(cached, 'token')]);
  }
  if (prune && usage) {
    const kept = prune.kept_per_layer;
    const share = kept.reduce((sum, tokens) => sum + tokens, 0) / (kept.length * usage.prompt_tokens);
    list.push(['Prefill', percent(share) + ' of token-layers']);
    list.push(['FLOPs saved, answer included', percent(Math.max(0, 1 - prune.flops / prune.flops_dense))]);
    if (prune.revived > 0) list.push(['Brought back', plural(prune.revived, 'token')]);
  }
  if (usage) list.push(['Answer', plural(usage.completion_tokens, 'token')]);
  if (timings && timings.predicted_per_second > 0) list.push(['Speed', timings.predicted_per_second.toFixed(1) + ' tokens/s']);
  if (prune) list.push(['Method', prune.spec]);
  if (prune && prune.auto) list.push(['Why', prune.auto]);
  return el('dl', {class: 'facts'}, ...list.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

export class Conversation {
  constructor(settings, picture) {
    this.settings = settings;
    this.picture = picture;
    this.layerCount = 0;
    this.running = null;  // AbortController
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
    byId('log').replaceChildren();
    byId('answers').hidden = true;
    byId('restart').hidden = true;
  }

  stop() {
    if (this.running) this.running.abort();
  }

  request(document, question) {
    const body = {
      ...this.settings.request(document),
      stream: true,
      stream_options: {include_usage: true},
      return_progress: true,
      return_prompt_pieces: true,
      return_prune_depth: true,
    };
    if (!this.settings.hasTemplate) {
      const stop = question === '' ? [] : ['\nQuestion:'];
      return {path: 'v1/completions', body: {...body, prompt: this.settings.promptOf(document, question), stop}};
    }
    const messages = [];
    for (const turn of [...this.turns, {question}]) {
      messages.push({role: 'user', content: turn.question});
      if (turn.answer !== undefined) messages.push({role: 'assistant', content: turn.answer});
    }
    if (document !== '') messages[0].content = document + '\n\n' + messages[0].content;
    return {path: 'v1/chat/completions', body: {...body, messages}};
  }

  async ask() {
    if (this.running) return;
    const text = byId('document').value;
    const question = byId('question').value.trim();
    problem('');
    if (text === '' && question === '') {
      byId('question').focus();
      return problem('Say what you want to know, or give a document to continue.');
    }
    if (text !== this.document) this.turns = [];  // what was said of another document is not sent with this one
    this.document = text;
    let request;
    try {
      request = this.request(text, question);
    } catch (error) {
      return problem(error.message);
    }
    const turn = this.newTurn(question || '(continue the text)');
    let prune;
    this.setRunning(new AbortController());
    this.picture.begin(this.layerCount);
    try {
      prune = await this.receive(request, turn);
      this.turns.push({question, answer: turn.answer});
      say('Answer: ' + turn.answer.slice(0, 2000));
      if (prune && prune.active) offerDense(turn, request, prune.spec, (one, work) => this.again(one, work));
    } catch (error) {
      this.fail(error, turn);
      if (turn.answer === '' && byId('question').value === '') byId('question').value = question;
    } finally {
      turn.progress.end();
      this.setRunning(null);
    }
    if (prune && prune.active && request.body.prune.complete) this.watchCompletion();
  }

  newTurn(question) {
    const answer = el('div', {class: 'answer'});
    const actions = el('div', {class: 'row actions'});
    const node = el('article', {class: 'turn'}, el('p', {class: 'who'}, 'You'), el('p', {class: 'plain'}, question),
                    el('p', {class: 'who'}, 'Answer'), answer, actions);
    byId('log').prepend(node);  // the newest first: it is what the picture below shows
    byId('answers').hidden = false;
    if (matchMedia('(max-width: 1019px)').matches) byId('answers').scrollIntoView();
    byId('question').value = '';
    say('The question is on its way.');
    const letters = document.createTextNode('');
    answer.append(letters);
    return {node, box: answer, actions, letters, answer: '', first: null, progress: new Progress(this.layerCount)};
  }

  async receive({path, body}, turn) {
    let usage, timings, prune, finish;
    for await (const event of events(path, body, this.running.signal)) {
      if (event.prompt_pieces) this.picture.setPieces(event.prompt_pieces);
      if (event.prompt_layers) this.picture.addLayers(event.prompt_layers);
      if (event.prompt_progress) turn.progress.add(event.prompt_progress);
      if (event.usage) usage = event.usage;
      if (event.timings) timings = event.timings;
      if (event.prune) prune = event.prune;
      const choice = event.choices && event.choices[0];
      if (choice && choice.finish_reason) finish = choice.finish_reason;
      let text = (choice && (choice.delta ? choice.delta.content : choice.text)) || '';
      if (text === '') continue;
      if (turn.first === null) {
        turn.first = performance.now() - turn.progress.begin;
        turn.progress.answer();
        say('First token after ' + seconds(turn.first));
      }
      if (turn.answer === '') text = text.trimStart();  // most models begin with a space
      turn.answer += text;
      turn.letters.appendData(text);
    }
    if (prune) this.picture.finish(prune);
    this.showAnswer(turn);
    if (finish === 'length')
      turn.node.append(el('p', {class: 'cut'}, `Cut after ${plural(usage.completion_tokens, 'token')}: see Longest answer in the settings.`));
    turn.node.append(facts(usage, timings, prune, turn.first));
    if (prune && prune.reason) turn.node.append(el('p', {class: 'note'}, prune.reason));
    return prune;
  }

  // The whole answer, in place of the letters as they came.
  showAnswer(turn) {
    turn.box.replaceChildren(...markdown(turn.answer));
    if (turn.answer === '' || !navigator.clipboard) return;  // browsers have none on pages without TLS, but for this machine
    const copy = el('button', {type: 'button', class: 'small'}, 'Copy');
    copy.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(turn.answer);
        copy.textContent = 'Copied';
        say('The answer is copied.');
      } catch (error) {
        problem('The browser does not copy: ' + error.message);
      }
    });
    turn.actions.append(copy);
  }

  // Another request about an answered turn. Returns undefined if it failed or was stopped.
  async again(turn, work) {
    if (this.running) return undefined;
    problem('');
    this.setRunning(new AbortController());
    turn.progress = new Progress(this.layerCount);
    try {
      return await work(this.running.signal);
    } catch (error) {
      if (error.name !== 'AbortError') problem(error.message);
      return undefined;
    } finally {
      turn.progress.end();
      this.setRunning(null);
    }
  }

  // Shows how far the server is with what the pruned read left out, until it is done or somebody asks.
  async watchCompletion() {
    const line = byId('completing');
    let seen = false;
    for (let idle = 0; idle < 4; await new Promise(done => setTimeout(done, kPoll))) {
      if (this.running) break;
      let slot;
      try {
        slot = (await get('slots')).find(one => one.is_completing);
      } catch {
        break;  // a server without this route
      }
      idle = slot ? 0 : idle + 1;
      if (!slot && seen) {
        line.textContent = 'The read is complete: further questions about this document are answered exactly.';
        return;
      }
      if (!slot) continue;
      seen = true;
      line.hidden = false;
      line.textContent = `Completing the read: ${percent(slot.n_prompt_tokens_processed / slot.n_prompt_tokens)} of ` +
          `${plural(slot.n_prompt_tokens, 'token')}.`;
    }
    line.hidden = true;
  }

  // The server's own words; a stop is no failure.
  fail(error, turn) {
    const stopped = error.name === 'AbortError';
    const text = stopped ? 'Stopped.' : error.message;
    if (turn.answer !== '') this.showAnswer(turn);
    turn.node.append(el('p', {class: stopped ? 'cut' : 'failed'}, text));
    if (stopped)
      say(text);
    else
      problem(text);
  }

  setRunning(controller) {
    this.running = controller;
    const buttons = [byId('send'), byId('stop')];
    const hadFocus = buttons.includes(document.activeElement);
    byId('send').disabled = controller !== null;
    byId('progress').hidden = controller === null;
    byId('restart').hidden = controller !== null || byId('log').childElementCount === 0;
    if (hadFocus) (controller ? byId('stop') : byId('question')).focus();
  }
}
