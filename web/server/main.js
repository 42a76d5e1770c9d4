// The page: what there is is asked of the server, the document comes from the user.

import {get, setKey} from './api.js';
import {Conversation} from './ask.js';
import {Completing} from './completing.js';
import {Document} from './document.js';
import {DocumentView} from './document_view.js';
import {byId, plural} from '../lib/dom.js';
import {chooseModel, load} from './models.js';
import {problem, startTheme} from './page.js';
import {Picture} from './picture.js';
import {Plan} from './plan.js';
import {Settings} from './settings.js';
import {Store} from './store.js';

const kRetry = 1000;  // ms, while the model is loaded

const picture = new Picture();
const settings = new Settings();
const conversation = new Conversation(settings, picture, new Completing(), new DocumentView());
const text = new Document(() => {
  plan.schedule();
  store.schedule();
});
const plan = new Plan(settings, conversation, text);
const store = new Store({settings, text, conversation});
conversation.changed = () => {
  plan.schedule();
  store.schedule();
};
startTheme(() => picture.draw());

const wait = ms => new Promise(done => setTimeout(done, ms));

async function connect() {
  try {
    const {meta} = await load(chooseModel((await get('v1/models')).data));
    const [props, {methods}] = await Promise.all([get('props'), get('methods')]);
    settings.start(props, methods);
    conversation.layerCount = meta.n_layer;
    plan.context = props.default_generation_settings.n_ctx;
    byId('model').textContent =
        `${props.model_alias}: ${plural(meta.n_layer, 'layer')}, a context of ${plural(plan.context, 'token')}`;
    byId('key-form').hidden = true;
    problem('');
    store.restore();
    plan.schedule();
  } catch (error) {
    if (error.status === 503) {
      byId('model').textContent = error.message;
      await wait(kRetry);
      return connect();
    }
    const isAsked = error.status === 401 && byId('key-form').hidden;  // nobody has given a wrong key yet
    problem(isAsked ? '' : error.message);
    byId('model').textContent = isAsked ? 'This server asks for a key.' : 'Not connected.';
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

connect();
