// What is known before anybody asks: how many tokens the document has, and whether the method would act on it.

import {post} from './api.js';
import {byId, number, plural} from '../lib/dom.js';

const kPause = 500;         // ms after the last change
const kLongest = 4 << 20;   // characters; of longer texts only those are counted

export class Preview {
  // `onPrune` is called when the user chooses to prune although the method would stand aside.
  constructor(settings, onPrune) {
    this.settings = settings;
    this.timer = 0;
    this.asking = null;
    this.source = '';
    byId('prune-anyway').addEventListener('click', () => {
      settings.pruneAnyway();
      onPrune();
      this.changed();
    });
    byId('method-card').addEventListener('change', () => this.changed());
    byId('method-card').addEventListener('input', () => this.changed());
  }

  // The document or the method changed. `source` names the file that the text is from.
  changed(source = this.source) {
    this.source = source;
    const text = byId('document').value;
    this.show(text === '' ? 'No text yet.' : plural(text.length, 'character'));
    this.advise('');
    clearTimeout(this.timer);
    if (this.asking) this.asking.abort();
    if (text !== '' && text.length <= kLongest) this.timer = setTimeout(() => this.ask(text), kPause);
  }

  async ask(text) {
    this.asking = new AbortController();
    try {
      const {prune} = this.settings.request(text);
      const reply = await post('tokenize', {prompt: text, prune}, this.asking.signal);
      this.show(`${plural(reply.count, 'token')}` +
                (reply.count > reply.max_model_len ? `, more than the context of ${number(reply.max_model_len)}` : ''));
      if (reply.prune && !reply.prune.active && this.settings.wantsPruning())
        this.advise(reply.prune.reason || 'The method would not act on this document.', this.settings.hasLeast());
    } catch (error) {
      // The question itself will say what is wrong.
    }
  }

  show(text) { byId('document-size').textContent = text + (this.source === '' ? '' : `, from ${this.source}`); }

  advise(text, canPrune = false) {
    byId('advice').hidden = text === '';
    byId('advice-text').textContent = text === '' ? '' : `This would be a dense run: ${text}`;
    byId('prune-anyway').hidden = !canPrune;
  }
}
