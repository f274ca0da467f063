// The terminal of a shell in a pod, in a file that is loaded on demand: xterm.
//
// The policy of the page refuses style elements and style attributes. The terminal therefore gets a document whose style
// elements are sheets of the object model.

import { Terminal } from '@xterm/xterm';

export interface Shown {
  /** Writes what the pod sends. */
  write: (bytes: Uint8Array | string) => void;
  size: () => { columns: number; rows: number };
  fit: () => void;
  focus: () => void;
  dispose: () => void;
}

/** An element that stands for a style element: its text is a sheet of the document. */
function styleElement(real: Document, sheets: CSSStyleSheet[]): HTMLElement {
  const element = real.createElement('span');
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  real.adoptedStyleSheets = [...real.adoptedStyleSheets, sheet];
  let text = '';
  Object.defineProperty(element, 'textContent', {
    get: () => text,
    set: (value: string) => {
      text = value;
      sheet.replaceSync(value);
    },
  });
  return element;
}

/** The document for the terminal. */
function withoutStyles(real: Document, sheets: CSSStyleSheet[]): Document {
  const createElement = (name: string) => {
    if (name === 'style') return styleElement(real, sheets);
    const element = real.createElement(name);
    const setAttribute = element.setAttribute.bind(element);
    element.setAttribute = (attribute: string, value: string) => {
      if (attribute === 'style') element.style.cssText = value;
      else setAttribute(attribute, value);
    };
    return element;
  };
  return new Proxy(real, {
    get(target, name) {
      if (name === 'createElement') return createElement;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
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
  const sheets: CSSStyleSheet[] = [];
  const terminal = new Terminal({
    documentOverride: withoutStyles(document, sheets),
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
    dispose: () => {
      terminal.dispose();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => !sheets.includes(one));
    },
  };
}
