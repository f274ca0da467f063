// Keyboard shortcuts: single letters, and pairs such as `g p`. They are off while the user types.

import { useLayoutEffect, useRef } from 'preact/hooks';
import type { Key } from '../lib/keymap';

export type { Key } from '../lib/keymap';

/** How long the first key of a pair waits for the second, in milliseconds. */
const PAIR = 1500;

const bound = new Set<{ current: Key[] }>();
let first: { key: string; at: number } | null = null;

export function isTyping(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement && target.type === 'checkbox') return false;
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName) ||
      target.hasAttribute('data-typing'))
  );
}

function pressed(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape' && !(event.target as HTMLElement).hasAttribute('data-typing')) {
      (event.target as HTMLElement).blur();
    }
    return;
  }
  if (document.querySelector('dialog[open]') !== null) return;
  // Enter and space activate the focused link or button.
  const isControl = event.target instanceof HTMLElement && ['BUTTON', 'A', 'SUMMARY'].includes(event.target.tagName);
  const isMark = event.target instanceof HTMLInputElement && event.target.type === 'checkbox';
  if ((isControl || isMark) && event.key === 'Enter') return;
  const all = [...bound].reverse().flatMap((keys) => keys.current);
  const pair = first !== null && event.timeStamp - first.at < PAIR ? `${first.key} ${event.key}` : '';
  first = null;
  const found = all.find((one) => one.keys === pair) ?? all.find((one) => one.keys === event.key);
  if (found !== undefined) {
    event.preventDefault();
    found.run();
  } else if (all.some((one) => one.keys.startsWith(`${event.key} `))) {
    event.preventDefault();
    first = { key: event.key, at: event.timeStamp };
  }
}

document.addEventListener('keydown', pressed);

/** Binds keys for as long as the component is shown; the newest component's count most. They are those of what is shown at any moment. */
export function useKeys(keys: Key[]): void {
  const now = useRef(keys);
  now.current = keys;
  useLayoutEffect(() => {
    bound.add(now);
    return () => {
      bound.delete(now);
    };
  }, []);
}

/** All keys that do something now, for the help. */
export function boundKeys(): Key[] {
  const seen = new Set<string>();
  return [...bound].flatMap((keys) => keys.current).filter((one) => !seen.has(one.keys) && seen.add(one.keys));
}
