// Which of several models the page asks. A server with one has no list.

import {get, post, setModel} from './api.js';
import {byId} from '../lib/dom.js';
import {problem} from './page.js';

const kName = 'coppice-model:' + location.pathname;  // several servers may stand behind one proxy
const kLook = 500;                                   // ms, while a model is being loaded

function remembered() {
  try {
    return sessionStorage.getItem(kName) || '';
  } catch {
    return '';  // a browser that keeps nothing
  }
}

// The model to ask, and the list to choose another from. `models` is what GET /v1/models says.
export function chooseModel(models) {
  const several = models.filter(model => model.status);
  if (several.length < 2) return models[0];
  const loaded = several.find(model => model.status.value === 'loaded');
  const chosen = several.find(model => model.id === remembered()) || loaded || several[0];
  setModel(chosen.id);
  const list = byId('models');
  list.replaceChildren(...several.map(model => {
    const option = new Option(model.id, model.id, false, model.id === chosen.id);
    if (model.status.failed) option.textContent += ' (could not be loaded)';
    return option;
  }));
  list.onchange = () => {
    try {
      sessionStorage.setItem(kName, list.value);
    } catch {
      // The next page begins with the model that is loaded.
    }
    location.reload();  // what the page knows of the model, it asks again
  };
  byId('models-row').hidden = false;
  return chosen;
}

// Waits until the model is loaded; a server's only one is.
export async function load(model) {
  if (!model.status || model.status.value === 'loaded') return model;
  byId('model').textContent = `Loading ${model.id}.`;
  await post('models/load', {model: model.id});
  for (;;) {
    const now = (await get('v1/models')).data.find(one => one.id === model.id);
    if (now.status.value === 'loaded') return now;
    if (now.status.failed) {
      problem(`${model.id} cannot be loaded: ${now.status.error}`);
      throw new Error(now.status.error);
    }
    await new Promise(done => setTimeout(done, kLook));
  }
}
