// The method and its settings, from what the server says it has.

import {byId, el} from '../lib/dom.js';

const kOwn = 'own';
const kUsual = 'coppice';  // stands with auto and none above the other methods
// The keys that are shown at once: how much stays, by whatever name the method has for it, and from which length on.
const kShare = ['keep', 'eta', 'r', 'p', 'cap', 'budget', 'recent', 'gamma', 'threshold', 'alpha', 'vertical'];
const kFirst = 'min';
// At temperature 0 small models say the same sentence until the answer is full. DRY makes what would go on with a
// repetition less likely: from the fifth token on, and only by what was said in the last tokens. At first these are the
// prompt's. Right of 24 answers (SmolLM2 in Q4_1, a number in a short text), and answers that loop: without damping 24
// and 1, with a window of 256 tokens 23 and none, with 64 tokens 24 and none.
const kDamping = .8;
const kRepeated = 4;  // tokens
const kWindow = 64;   // tokens
const kForm = '{document}\nQuestion: {question}\nAnswer:';

function field(id, name, help, placeholder) {
  const input = el('input', {id, placeholder, spellcheck: 'false', autocapitalize: 'off', 'aria-describedby': id + '-help'});
  return el('div', {class: 'field'}, el('label', {for: id}, name), input, el('span', {class: 'note', id: id + '-help'}, help));
}

// A key's default as a hint in its field, where it is short enough to be read there.
const hintOf = key => key.default.length <= 20 ? key.default : '';

function wholeNumber(id, name) {
  const text = byId(id).value.trim();
  if (text === '') return undefined;
  if (!/^-?\d+$/.test(text)) throw new Error(`${name}: ${text} is not a whole number`);
  return Number(text);
}

export class Settings {
  constructor() {
    this.methods = [];
    byId('form').value = kForm;
    byId('method').addEventListener('change', () => this.showMethod());
  }

  // `props` is the answer of /props, `methods` that of /methods.
  start(props, methods) {
    this.methods = methods;
    this.hasTemplate = props.chat_template !== '';
    const defaults = props.default_generation_settings.params;
    this.fallback = defaults.prune;
    this.temperature = defaults.temperature;
    this.isDamped = defaults.dry_multiplier > 0;  // by the server, as it was started
    const usual = this.isDamped ? `${defaults.dry_multiplier}, as the server was started` : `${kDamping} at temperature 0, else 0`;
    byId('damping-help').textContent =
        `makes what repeats the answer's last words less likely (DRY); 0: not at all; empty: ${usual}`;
    byId('temperature-help').textContent = `0: always the likeliest token; empty: 0 with a document, else ${defaults.temperature}`;
    byId('complete').checked = defaults.complete === true;
    byId('form-fields').hidden = this.hasTemplate;
    const options = [
      el('option', {value: 'default'}, `The server's choice (${this.fallback})`),
      el('option', {value: 'auto'}, "auto (the model's calibration)"),
    ];
    const others = el('optgroup', {label: 'More methods'});
    for (const method of methods) {
      const option = el('option', {value: method.name}, method.name);
      // A request names no file of the server.
      const file = method.keys.find(key => key.names_file && key.default.startsWith('none'));
      if (file) {
        option.disabled = true;
        option.textContent += ` (needs a file; by the server's --prune alone)`;
      }
      if (method.name === kUsual)
        options.push(option);
      else
        others.append(option);
    }
    others.append(el('option', {value: kOwn}, 'Several, as a spec'));
    options.push(el('option', {value: 'none'}, 'none (a full read)'), others);
    this.choose(byId('method'), options);
  }

  // Fills the list; what was chosen stays so if it is still there.
  choose(list, options) {
    const before = list.value;
    list.replaceChildren(...options);
    if ([...list.options].some(option => option.value === before)) list.value = before;
    this.showMethod();
  }

  showMethod() {
    const value = byId('method').value;
    const method = this.methods.find(m => m.name === value);
    const notes = {
      default: 'What the server was started with.',
      none: 'Every token in every layer.',
      auto: "The fastest setting that was shown to keep this model's answers on prompts of this length; else none. The answer says which.",
      [kOwn]: 'Methods joined by +, keys by commas, lists by slashes: sliminfer:layers=5/10/14+ftp:dense=4.',
    };
    byId('method-note').textContent = method ? `${method.summary}. ${method.paper}` : notes[value];
    byId('method-now').textContent = value === 'default' ? `the server's choice (${this.fallback})` : value;
    let shown = [];
    let folded = [];
    if (method) {
      const keys = method.keys.filter(key => !key.names_file);
      const share = kShare.find(name => keys.some(key => key.name === name));
      const fieldOf = key =>
          field('key-of-' + key.name, key.name, `${key.meaning} (${key.range}); default: ${key.default}`, hintOf(key));
      const isShown = key => key.name === share || key.name === kFirst;
      shown = keys.filter(isShown).map(fieldOf);
      folded = keys.filter(key => !isShown(key)).map(fieldOf);
    } else if (value === kOwn) {
      shown = [field('spec', 'Spec', 'as --prune takes it', 'sliminfer+ftp')];
    }
    byId('main-keys').replaceChildren(...shown);
    byId('method-keys').replaceChildren(...folded);
  }

  // The method with its keys as one text; '' for an empty one of the user's.
  spec() {
    const value = byId('method').value;
    if (value === kOwn) return byId('spec').value.trim();
    const keys = Object.entries(this.keys()).map(([name, text]) => `${name}=${text}`);
    return keys.length === 0 ? value : `${value}:${keys.join(',')}`;
  }

  // Chooses what `spec` says, in the fields of its method or, for several, as a text.
  set(spec) {
    const [name, keys = ''] = spec.split(/:(.*)/s);
    const isOne = !spec.includes('+') && this.methods.some(method => method.name === name);
    byId('method').value = isOne ? name : kOwn;
    this.showMethod();
    if (!isOne) {
      byId('spec').value = spec;
      return;
    }
    for (const key of keys.split(',').filter(text => text !== '')) {
      const [id, text] = key.split(/=(.*)/s);
      const input = byId('key-of-' + id);
      if (input) input.value = text;
    }
  }

  // What the method's fields say.
  keys() {
    const method = this.methods.find(m => m.name === byId('method').value);
    const keys = {};
    for (const key of method ? method.keys : []) {
      const input = byId('key-of-' + key.name);
      if (input && input.value.trim() !== '') keys[key.name] = input.value.trim();
    }
    return keys;
  }

  // What a reload keeps: the fields of the card by their ids.
  state() {
    const fields = {};
    for (const input of byId('method-card').querySelectorAll('select, input, textarea'))
      fields[input.id] = input.type === 'checkbox' ? input.checked : input.value;
    return fields;
  }

  restore(fields) {
    if ([...byId('method').options].some(option => option.value === fields.method)) byId('method').value = fields.method;
    this.showMethod();  // which makes the fields of its keys
    for (const [id, value] of Object.entries(fields)) {
      const input = id === 'method' ? null : byId(id);
      if (input) input[typeof value === 'boolean' ? 'checked' : 'value'] = value;
    }
  }

  // The part of a request about this document that they make. Throws Error for what the server could not even be
  // asked.
  request(document) {
    const value = byId('method').value;
    const prune = {};
    if (this.methods.some(method => method.name === value)) {
      Object.assign(prune, {method: value}, this.keys());
    } else {
      prune.spec = value === kOwn ? byId('spec').value.trim() : value;
      if (prune.spec === '') throw new Error('Spec: say which methods, or choose another entry of the list');
    }
    const last = wholeNumber('protect-last', 'Never prune the last');
    if (last !== undefined) prune.protect_last = last;
    prune.complete = byId('complete').checked;
    const body = {prune, max_tokens: wholeNumber('max-tokens', 'Longest answer')};
    const temperature = byId('temperature').value.trim();
    if (temperature !== '') {
      body.temperature = Number(temperature);
      if (!Number.isFinite(body.temperature)) throw new Error(`Temperature: ${temperature} is not a number`);
    } else if (document !== '') {
      body.temperature = 0;  // what the document says, not what chance says
    }
    Object.assign(body, this.damping(body.temperature === undefined ? this.temperature : body.temperature));
    return body;
  }

  // The part of a request that keeps the answer from saying the same again and again.
  damping(temperature) {
    const text = byId('damping').value.trim();
    if (text !== '' && !(Number(text) >= 0)) throw new Error(`Damping of repetition: ${text} is not a number from 0`);
    if (text === '' && (temperature !== 0 || this.isDamped)) return {};
    return {dry_multiplier: text === '' ? kDamping : Number(text), dry_allowed_length: kRepeated, dry_penalty_last_n: kWindow};
  }

  // A model without a chat template reads one text.
  promptOf(document, question) {
    if (question === '') return document;
    const parts = {'{document}': document, '{question}': question};
    return byId('form').value.replace(/\{document\}|\{question\}/g, name => parts[name]);
  }
}
