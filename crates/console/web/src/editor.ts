// The editor of YAML, in a file that is loaded on demand: CodeMirror with highlighting, folding, line numbers,
// search, and completion by a schema.
//
// The editor is in a shadow root. Its styles are then sheets of the document object model, which the policy of the page
// allows, and no inline styles.

import { autocompletion, type CompletionContext, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import {
  bracketMatching,
  foldGutter,
  foldKeymap,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { EditorState, Compartment } from '@codemirror/state';
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  hoverTooltip,
  keymap,
  lineNumbers,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { pathAt } from './lib/yaml-path';

/** What a schema says of the place in a text: names of fields with their meaning. */
export interface Hint {
  name: string;
  detail: string;
  info: string;
}

export interface EditorOptions {
  label: string;
  text: string;
  readOnly: boolean;
  changed: (text: string) => void;
  /** Called for Ctrl+Enter. */
  submit: () => void;
  /** The fields that may stand at a path of keys. */
  fields: (path: string[]) => Hint[];
}

export interface Editor {
  text: () => string;
  setText: (text: string) => void;
  setReadOnly: (is: boolean) => void;
  focus: () => void;
  destroy: () => void;
}

const theme = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'var(--code)', fontSize: '12.5px', maxHeight: '64vh' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', overflow: 'auto' },
  '.cm-gutters': { backgroundColor: 'var(--code)', color: 'var(--muted)', border: 'none', paddingRight: '4px' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '.cm-content': { caretColor: 'var(--text)', padding: '8px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection': {
    backgroundColor: 'var(--selection) !important',
  },
  '.cm-selectionMatch': { backgroundColor: 'var(--accent-soft)' },
  '.cm-tooltip': {
    backgroundColor: 'var(--raised)',
    color: 'var(--text)',
    border: '1px solid var(--line)',
    borderRadius: '8px',
  },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent-soft)', color: 'var(--text)' },
  '.cm-completionDetail': { color: 'var(--muted)' },
  '.cm-completionInfo, .cm-explain': { maxWidth: '420px', padding: '8px 10px', whiteSpace: 'pre-wrap' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--text)', borderColor: 'var(--line)' },
  '.cm-panels input, .cm-panels button': { font: 'inherit' },
  '.cm-textfield': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-button': {
    backgroundImage: 'none',
    backgroundColor: 'var(--panel)',
    color: 'var(--text)',
    border: '1px solid var(--line)',
  },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--hover)', border: 'none', color: 'var(--muted)' },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--code-key)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: 'var(--code-number)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: tags.invalid, color: 'var(--bad)' },
]);

function indentOf(line: string): number {
  return (/^ *(?:- +)*/.exec(line)?.[0] ?? '').length;
}

function completion(fields: EditorOptions['fields']) {
  return (context: CompletionContext) => {
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const word = /^ *(?:- +)*([A-Za-z]*)$/.exec(before);
    if (word === null || (word[1] === '' && !context.explicit)) return null;
    const lines = context.state.doc.toString().split('\n');
    const hints = fields(pathAt(lines, line.number - 1, indentOf(before)));
    if (hints.length === 0) return null;
    const options = hints.map(({ name, detail, info }) => ({
      label: name,
      detail,
      info,
      apply: `${name}: `,
      type: 'property',
    }));
    return { from: context.pos - (word[1]?.length ?? 0), options, validFor: /^[A-Za-z]*$/ };
  };
}

/** Explains the field under the pointer. */
function explain(fields: EditorOptions['fields']) {
  return hoverTooltip((view, at) => {
    const line = view.state.doc.lineAt(at);
    const match = /^( *(?:- +)*)([A-Za-z][\w-]*):/.exec(line.text);
    if (match === null || at - line.from < (match[1]?.length ?? 0)) return null;
    if (at - line.from > match[0].length) return null;
    const lines = view.state.doc.toString().split('\n');
    const hint = fields(pathAt(lines, line.number - 1, (match[1] ?? '').length)).find(({ name }) => name === match[2]);
    if (hint === undefined) return null;
    return {
      pos: line.from + (match[1]?.length ?? 0),
      create: () => {
        const dom = document.createElement('div');
        dom.className = 'cm-explain';
        dom.textContent = `${hint.name} <${hint.detail}>\n${hint.info}`;
        return { dom };
      },
    };
  });
}

/** Makes an editor in an element. */
export function createEditor(host: HTMLElement, options: EditorOptions): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const readOnly = new Compartment();
  const readOnlyOf = (is: boolean) => [EditorState.readOnly.of(is), EditorView.editable.of(!is)];
  let silent = false;
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        lineNumbers(),
        foldGutter(),
        history(),
        drawSelection(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        indentOnInput(),
        indentUnit.of('  '),
        bracketMatching(),
        highlightSelectionMatches(),
        search({ top: true }),
        yaml(),
        syntaxHighlighting(colours),
        autocompletion({ override: [completion(options.fields)] }),
        explain(options.fields),
        readOnly.of(readOnlyOf(options.readOnly)),
        EditorView.contentAttributes.of({
          'aria-label': options.label,
          spellcheck: 'false',
          autocapitalize: 'off',
          tabindex: '0',
        }),
        EditorView.lineWrapping,
        keymap.of([
          {
            key: 'Mod-Enter',
            run: () => {
              options.submit();
              return true;
            },
          },
          ...completionKeymap,
          ...searchKeymap,
          ...historyKeymap,
          ...foldKeymap,
          ...defaultKeymap,
          indentWithTab,
        ]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !silent) options.changed(update.state.doc.toString());
        }),
        theme,
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    setText: (text) => {
      if (text === view.state.doc.toString()) return;
      silent = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      silent = false;
    },
    setReadOnly: (is) => view.dispatch({ effects: readOnly.reconfigure(readOnlyOf(is)) }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
