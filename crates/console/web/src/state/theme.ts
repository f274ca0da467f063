// Dark or light: the system's setting unless the user chooses one. Only this choice is kept in localStorage.

import { store } from './store';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'keelson.theme';
const read = localStorage.getItem(KEY);
export const theme = store<Theme>(read === 'light' || read === 'dark' ? read : 'system');

function show(): void {
  const now = theme.get();
  if (now === 'system') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', now);
}

show();

export function nextTheme(): Theme {
  const dark = window.matchMedia('(prefers-color-scheme: dark)').matches;
  const now = theme.get();
  const other = dark ? 'light' : 'dark';
  const next: Theme = now === 'system' ? other : now === other ? (dark ? 'dark' : 'light') : 'system';
  theme.set(next);
  if (next === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  show();
  return next;
}
