// The terminal of a shell in a pod, in a file that is loaded on demand: xterm.
//
// The build gives this file another document (`lib/page-document.ts`), since the policy of the page refuses its styles.

import { Terminal } from '@xterm/xterm';
import { pageDocument } from './lib/page-document';

export interface Shown {
  /** Writes what the pod sends. */
  write: (bytes: Uint8Array | string) => void;
  size: () => { columns: number; rows: number };
  fit: () => void;
  focus: () => void;
  dispose: () => void;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Shows a terminal in an element. `typed` gets what the user types, `resized` the size when it changes. */
export function openTerminal(
  host: HTMLElement,
  typed: (text: string) => void,
  resized: (columns: number, rows: number) => void,
): Shown {
  const terminal = new Terminal({
    documentOverride: pageDocument,
    cursorBlink: !window.matchMedia('(prefers-reduced-motion: reduce)').matches,
    fontFamily: colour('--mono'),
    fontSize: 13,
    scrollback: 5000,
    screenReaderMode: true,
    // Links in the output of a program open no page.
    linkHandler: { activate: () => undefined },
    theme: {
      background: colour('--terminal'),
      foreground: colour('--terminal-text'),
      cursor: colour('--terminal-text'),
      selectionBackground: '#5b7fa688',
    },
  });
  terminal.open(host);
  terminal.onData(typed);
  terminal.onResize(({ cols, rows }) => resized(cols, rows));
  const fit = () => {
    const screen = host.querySelector('.xterm-screen');
    if (!(screen instanceof HTMLElement) || screen.offsetWidth === 0) return;
    const [width, height] = [screen.offsetWidth / terminal.cols, screen.offsetHeight / terminal.rows];
    const columns = Math.max(20, Math.min(500, Math.floor((host.clientWidth - 16) / width)));
    const rows = Math.max(5, Math.min(200, Math.floor((host.clientHeight - 8) / height)));
    if (columns !== terminal.cols || rows !== terminal.rows) terminal.resize(columns, rows);
  };
  return {
    write: (bytes) => terminal.write(bytes),
    size: () => ({ columns: terminal.cols, rows: terminal.rows }),
    fit,
    focus: () => terminal.focus(),
    dispose: () => terminal.dispose(),
  };
}
