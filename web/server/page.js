// Messages of the page, its clock and its theme.

import {byId} from '../lib/dom.js';

export function seconds(ms) {
  const value = ms / 1000;
  if (value >= 90) return Math.floor(value / 60) + ' min ' + Math.round(value % 60) + ' s';
  return (value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)) + ' s';
}

// What a screen reader says when it has time.
export function say(text) { byId('say').textContent = text; }

export function problem(text) {
  byId('problem').textContent = text;
  byId('problem').hidden = text === '';
}

const themes = ['system', 'light', 'dark'];
const kThemeName = 'coppice-theme';

// Calls `changed` whenever colours do.
export function startTheme(changed) {
  let theme = 'system';
  try {
    theme = localStorage.getItem(kThemeName) || theme;
  } catch {
    // A browser that keeps nothing: the system's theme.
  }
  const apply = () => {
    if (!themes.includes(theme)) theme = 'system';
    if (theme === 'system')
      delete document.documentElement.dataset.theme;
    else
      document.documentElement.dataset.theme = theme;
    byId('theme').textContent = 'Theme: ' + theme;
    changed();
  };
  byId('theme').addEventListener('click', () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try {
      localStorage.setItem(kThemeName, theme);
    } catch {
      // It holds for this page then.
    }
    apply();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
  apply();
}
