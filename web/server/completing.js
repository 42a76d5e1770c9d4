// The read that completes itself after a pruned answer, shown while the server does it: GET /slots has one more entry
// then.

import {get, getText} from './api.js';
import {byId, percent, plural} from '../lib/dom.js';
import {say} from './page.js';

const kPause = 400;     // ms between two looks
const kPatience = 8;    // looks without a sign of it

export class Completing {
  constructor() {
    this.round = 0;  // counts watches: an old one ends when a new one begins
    this.document = null;  // the one whose read is known to be complete
    this.end();
  }

  end() {
    ++this.round;
    byId('completing').hidden = true;
  }

  // How many documents the server has completed, and how many wait; null where it does not tell.
  async counts() {
    try {
      const text = await getText('metrics');
      const value = name => Number(new RegExp(`^coppice_${name} (\\d+)`, 'm').exec(text)[1]);
      return {completed: value('documents_completed_total'), incomplete: value('documents_incomplete')};
    } catch {
      return null;
    }
  }

  async before() { this.atFirst = await this.counts(); }

  show(text, share) {
    byId('completing').hidden = false;
    byId('completing-text').textContent = text;
    byId('completing-bar').hidden = share === null;
    if (share !== null) byId('completing-bar').value = share;
  }

  // After the answer to `body`, about `document`, that ended as `end`.
  async watch(body, end, document) {
    const asked = typeof body.prune === 'object' && body.prune.complete;
    if (!asked || !end.prune || !end.prune.active || !end.usage) return;
    const round = ++this.round;
    this.show('The read will be completed when no question waits.', null);
    for (let missed = 0; missed < kPatience;) {
      const state = await this.look(end.usage.prompt_tokens);
      if (round !== this.round) return;
      if (state.done) return this.finish(document);
      if (state.share === null)
        ++missed;
      else {
        missed = 0;
        const of = plural(end.usage.prompt_tokens, 'token');
        this.show(`Reading what was left out of ${of}: ${percent(state.share)}`, state.share);
      }
      await new Promise(done => setTimeout(done, kPause));
    }
    if (round === this.round) this.show('The server does not complete this read: it may be too long for its cache.', null);
  }

  async look(tokens) {
    const [slots, counts] = await Promise.all([get('slots').catch(() => []), this.counts()]);
    const slot = slots.find(one => one.is_completing && one.n_prompt_tokens === tokens);
    if (slot) return {share: slot.n_prompt_tokens_processed / tokens, done: false};
    const more = counts && this.atFirst && counts.completed > this.atFirst.completed;
    if (more && counts.incomplete === 0) return {share: null, done: true};
    return {share: counts && counts.incomplete > 0 ? 0 : null, done: false};
  }

  finish(document) {
    this.document = document;
    const text = 'The read is complete: further questions about this document are answered densely, and cost their ' +
        'own tokens.';
    this.show(text, 1);
    byId('completing-bar').hidden = true;
    say(text);
  }
}
