// YAML with folding: a key with nested lines is a button, whose state screen readers announce.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { lines, parts } from '../lib/folds';
import { yamlOf } from '../lib/text';
import { visible } from '../lib/visible';

/** What is folded at first: what is long and seldom read. */
const FOLDED = /^ {2}(annotations|managedFields):$/;

/** The object as YAML, when the writer of YAML is there. */
export function useYaml(value: unknown): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    let current = true;
    void yamlOf(value).then((made) => current && setText(made));
    return () => {
      current = false;
    };
  }, [value]);
  return text;
}

export function YamlView({ value }: { value: unknown }) {
  const text = useYaml(value);
  const all = useMemo(() => lines(text ?? ''), [text]);
  const [folded, setFolded] = useState<Set<string> | null>(null);
  /** A line is known by its number and text, so that it stays folded when something else changes. */
  const nameOf = (at: number) => `${all[at]?.indent ?? 0}${all[at]?.text ?? ''}`;
  const isFolded = (at: number) => {
    const line = all[at];
    if (line === undefined || line.end === at + 1) return false;
    return folded === null ? FOLDED.test(line.text) : folded.has(nameOf(at));
  };
  const toggle = (at: number) => {
    const next = new Set(
      folded ??
        all
          .map((_, line) => line)
          .filter(isFolded)
          .map(nameOf),
    );
    if (!next.delete(nameOf(at))) next.add(nameOf(at));
    setFolded(next);
  };
  if (text === null) return <p class="loading">Loading…</p>;
  const shown: number[] = [];
  for (let at = 0; at < all.length; at = isFolded(at) ? (all[at]?.end ?? at + 1) : at + 1) shown.push(at);
  const foldAll = (fold: boolean) => {
    setFolded(
      new Set(fold ? all.flatMap((line, at) => (line.end > at + 1 && line.indent === 0 ? [nameOf(at)] : [])) : []),
    );
  };
  return (
    <div class="yaml">
      <div class="yaml-actions">
        <button type="button" class="quiet" onClick={() => foldAll(true)}>
          Fold
        </button>
        <button type="button" class="quiet" onClick={() => foldAll(false)}>
          Unfold
        </button>
        <button type="button" class="quiet" onClick={() => void navigator.clipboard.writeText(text)}>
          Copy
        </button>
      </div>
      <div class="code" role="region" aria-label="YAML" tabIndex={0}>
        {shown.map((at) => {
          const line = all[at];
          if (line === undefined) return null;
          const [before, key, rest] = parts(line.text);
          const has = line.end > at + 1;
          const closed = isFolded(at);
          return (
            <div class="line" key={at}>
              {has ? (
                <button
                  type="button"
                  class="fold"
                  aria-expanded={!closed}
                  aria-label={`${closed ? 'Unfold' : 'Fold'} ${key === '' ? 'item' : key.replace(/:$/, '')}`}
                  onClick={() => toggle(at)}
                >
                  {closed ? '▸' : '▾'}
                </button>
              ) : (
                <span class="fold" />
              )}
              <span class="text">
                {before}
                {key !== '' && <span class="key">{visible(key)}</span>}
                <span class="value">{visible(rest)}</span>
                {closed && <span class="more"> … {line.end - at - 1} lines</span>}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}
