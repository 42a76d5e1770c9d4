// How far a prefill is, and how long the rest takes at its latest speed: pruned layers are faster than those before.

import {byId, number, percent, plural} from '../lib/dom.js';
import {say, seconds} from './page.js';

const kTick = 200;     // ms between two texts of the clock
const kWindow = 3000;  // ms of progress that the rest is reckoned from

export class Progress {
  // `what`: which of several runs this is, or ''.
  constructor(layerCount, what) {
    this.layerCount = layerCount;
    this.what = what;
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
    byId('progress-text').textContent = this.what === '' ? text : `${this.what}: ${text}`;
  }

  answer() {
    this.answering = true;
    byId('bar').value = 1;
    this.show();
  }

  end() { clearInterval(this.timer); }
}
