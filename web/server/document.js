// The document: pasted, dropped, or read from a file, by the server where it is no plain text.

import {byId, plural} from '../lib/dom.js';
import {isForServer, readOnServer} from './file_text.js';
import {problem} from './page.js';

export class Document {
  // Calls `changed` whenever the text does.
  constructor(changed) {
    this.changed = changed;
    this.file = '';  // the file's name, if the text came from one
    this.reading = new AbortController();  // of the file that the server reads
    byId('document').addEventListener('input', () => this.set(null, ''));
    byId('choose').addEventListener('click', () => byId('file').click());
    byId('file').addEventListener('change', event => {
      const [file] = event.target.files;
      if (file) this.read(file);
      event.target.value = '';  // the same file may be chosen again
    });
    byId('clear').addEventListener('click', () => {
      this.set('', '');
      byId('document').focus();
    });
    byId('leave-reading').addEventListener('click', () => this.reading.abort());
    this.takeDrops();
    this.showSize(null);
  }

  text() { return byId('document').value; }

  // A text, or null for the one that is there.
  set(text, file) {
    this.reading.abort();
    this.showWarnings([]);
    if (text !== null) {
      byId('document').value = text;
      byId('document').scrollTop = 0;
    }
    this.file = file;
    this.showSize(null);
    this.changed();
  }

  // What a reload keeps; the text itself is the first of the documents.
  state() { return {file: this.file}; }
  restore({file}, [text]) {
    if (text !== '') this.set(text, file);
  }

  // `count`: {tokens, isExact}, or null while nobody knows.
  showSize(count) {
    const text = this.text();
    let size = text === '' ? 'No text yet.' : plural(text.length, 'character');
    if (text !== '' && count) size = `${count.isExact ? '' : 'about '}${plural(count.tokens, 'token')}`;
    byId('document-size').textContent = size + (text !== '' && this.file !== '' ? `, from ${this.file}` : '');
  }

  showWarnings(warnings) {
    byId('file-note').textContent = warnings.join(' ');
    byId('file-note').hidden = warnings.length === 0;
  }

  async read(file) {
    problem('');
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (isForServer(bytes)) return this.readByServer(file);
    let text;
    try {
      if (bytes.includes(0)) throw new TypeError();  // UTF-8 may hold it, texts do not
      text = new TextDecoder('utf-8', {fatal: true}).decode(bytes);
    } catch {
      return problem(`${file.name} is not a text in UTF-8; save it as plain text, PDF or DOCX first.`);
    }
    this.set(text, file.name);
  }

  // Another file, a change of the text or Stop ends it.
  async readByServer(file) {
    this.reading.abort();
    const reading = this.reading = new AbortController();
    byId('reading-text').textContent = `The server reads ${file.name}.`;
    byId('reading').hidden = false;
    try {
      const {text, pages, warnings} = await readOnServer(file, reading.signal);
      if (reading.signal.aborted) return;
      this.set(text, pages ? `${file.name} (${plural(pages, 'page')})` : file.name);
      this.showWarnings(warnings);
    } catch (error) {
      if (!reading.signal.aborted) problem(`${file.name}: ${error.message}`);
    } finally {
      if (this.reading === reading) byId('reading').hidden = true;
    }
  }

  // Without these the browser would leave the page and show the file.
  takeDrops() {
    document.addEventListener('dragover', event => {
      event.preventDefault();
      document.body.classList.add('dropping');
    });
    document.addEventListener('dragleave', event => {
      if (event.relatedTarget === null) document.body.classList.remove('dropping');
    });
    document.addEventListener('drop', event => {
      document.body.classList.remove('dropping');
      const [file] = event.dataTransfer.files;
      if (file) {
        event.preventDefault();
        this.read(file);
      } else if (event.target !== byId('document')) {
        event.preventDefault();
        this.set(event.dataTransfer.getData('text/plain'), '');
      }
    });
  }
}
