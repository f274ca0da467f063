// A field for YAML: a plain one until the editor is loaded, and for good where it can't be.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Editor, Hint } from '../editor';
import { useLatest } from './latest';

export interface CodeEditorProps {
  label: string;
  value: string;
  readOnly: boolean;
  onInput: (text: string) => void;
  onSubmit: () => void;
  fields?: (path: string[]) => Hint[];
}

const NO_FIELDS = () => [];

export function CodeEditor(props: CodeEditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const [isLoaded, setLoaded] = useState(false);
  const latest = useLatest(props);
  useEffect(() => {
    let isOver = false;
    import('../editor').then(
      ({ createEditor }) => {
        if (isOver || host.current === null) return;
        const now = latest.current;
        editor.current = createEditor(host.current, {
          label: now.label,
          text: now.value,
          readOnly: now.readOnly,
          changed: (text) => latest.current.onInput(text),
          submit: () => latest.current.onSubmit(),
          fields: (path) => (latest.current.fields ?? NO_FIELDS)(path),
        });
        // The text is read and set as that of a field.
        Object.defineProperty(host.current, 'value', {
          configurable: true,
          get: () => latest.current.value,
          set: (text: string) => latest.current.onInput(text),
        });
        setLoaded(true);
        editor.current.focus();
      },
      () => undefined,
    );
    return () => {
      isOver = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, [latest]);
  // Before the next key: an effect after the paint would put an older text over what was typed since.
  useLayoutEffect(() => editor.current?.setText(props.value), [props.value]);
  useEffect(() => editor.current?.setReadOnly(props.readOnly), [props.readOnly]);
  return (
    <div class="code-field">
      <div
        ref={host}
        class="code-editor"
        data-typing
        data-loaded={isLoaded}
        data-read-only={props.readOnly}
        hidden={!isLoaded}
      />
      {!isLoaded && (
        <textarea
          class="code"
          aria-label={props.label}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          readOnly={props.readOnly}
          rows={16}
          value={props.value}
          onInput={(event) => props.onInput(event.currentTarget.value)}
        />
      )}
    </div>
  );
}
