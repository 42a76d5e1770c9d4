// The page: what there is is asked of the server, the document comes from the user.

import {get, setKey} from './api.js';
import {Conversation} from './ask.js';
import {byId, plural} from '../lib/dom.js';
import {problem, startTheme} from './page.js';
import {Picture} from './picture.js';
import {Preview} from './preview.js';
import {Settings} from './settings.js';

const kRetry = 1000;  // ms, while the model is loaded

const picture = new Picture();
const settings = new Settings();
const conversation = new Conversation(settings, picture);
const preview = new Preview(settings, () => byId('question').focus());
startTheme(() => picture.draw());

const wait = ms => new Promise(done => setTimeout(done, ms));

async function connect() {
  try {
    const [props, {methods}, models] = await Promise.all([get('props'), get('methods'), get('v1/models')]);
    const {meta} = models.data[0];
    settings.start(props, methods);
    conversation.layerCount = meta.n_layer;
    byId('model').textContent = `${props.model_alias}: ${plural(meta.n_layer, 'layer')}, a context of ` +
        `${plural(props.default_generation_settings.n_ctx, 'token')}`;
    byId('key-form').hidden = true;
    preview.changed();
    problem('');
  } catch (error) {
    if (error.status === 503) {
      byId('model').textContent = error.message;
      await wait(kRetry);
      return connect();
    }
    problem(error.message);
    byId('model').textContent = 'Not connected.';
    if (error.status !== 401) return;
    byId('key-form').hidden = false;
    byId('key').focus();
  }
}

byId('key-form').addEventListener('submit', event => {
  event.preventDefault();
  setKey(byId('key').value.trim());
  connect();
});

// The document.

async function readFile(file) {
  problem('');
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text;
  try {
    if (bytes.includes(0)) throw new TypeError();  // UTF-8 may hold it, texts do not
    text = new TextDecoder('utf-8', {fatal: true}).decode(bytes);
  } catch {
    return problem(`${file.name} is not a text in UTF-8; save it as plain text first.`);
  }
  byId('document').value = text;
  byId('document').scrollTop = 0;
  preview.changed(file.name);
}

byId('document').addEventListener('input', () => preview.changed(''));
byId('choose').addEventListener('click', () => byId('file').click());
byId('file').addEventListener('change', event => {
  const [file] = event.target.files;
  if (file) readFile(file);
  event.target.value = '';  // the same file may be chosen again
});
byId('clear').addEventListener('click', () => {
  byId('document').value = '';
  preview.changed('');
  byId('document').focus();
});

// Without these two the browser would leave the page and show the file.
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
    readFile(file);
  } else if (event.target !== byId('document')) {
    event.preventDefault();
    byId('document').value = event.dataTransfer.getData('text/plain');
    preview.changed('');
  }
});

preview.changed();
connect();
