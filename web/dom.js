// Elements, numbers, colours, the theme. Texts of users and models reach the page as text nodes alone.

export const byId = id => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const number = value => value.toLocaleString('en-US', {maximumFractionDigits: 0});
export const plural = (count, word) => number(count) + ' ' + word + (count === 1 ? '' : 's');

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < .05) return 'below 0.1 %';
  return (value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)) + ' %';
}

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

// [r, g, b] of a custom property. Only an element's own colour is resolved for the current theme.
export function colour(property) {
  const probe = el('i');
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return parts;
}
export const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);
export const rgb = ([r, g, b]) => `rgb(${Math.round(r)} ${Math.round(g)} ${Math.round(b)})`;

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
