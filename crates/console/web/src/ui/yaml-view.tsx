// YAML with folding: a key with nested lines is a button, whose state screen readers announce.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { told } from '../api/client';
import type { Json, JsonObject } from '../api/types';
import { lines, parts } from '../lib/folds';
import { isMap } from '../lib/json';
import { yamlOf } from '../lib/text';
import { counted } from '../lib/time';
import { visible } from '../lib/visible';
import { copy } from './copy';

/** How many lines are shown at first. */
const MOST_LINES = 3000;
/** What is folded at first: what is long and seldom read. */
const FOLDED = /^ {2}(annotations|managedFields):$/;

/** The object as YAML, when the writer of YAML is there. */
export function useYaml(value: unknown): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    let current = true;
    yamlOf(value)
      .then((made) => current && setText(made))
      // Objects of aggregated servers may be nested more deeply than can be written.
      .catch((error: unknown) => current && setText(`# This can't be written as YAML: ${told(error)}`));
    return () => {
      current = false;
    };
  }, [value]);
  return text;
}

/** What a value is, for its colour. */
function kindOf(rest: string): string {
  const text = rest.trim();
  if (/^(-?\d[\d.eE+-]*|true|false|null|\{\}|\[\])$/.test(text)) return 'is-number';
  return /^[|>]|^"|^'/.test(text) ? 'is-text' : '';
}

/** A secret without the values of its data. */
function masked(value: unknown): unknown {
  const hide = (data: unknown) =>
    isMap(data) ? Object.fromEntries(Object.keys(data).map((name) => [name, '••••••••'])) : data;
  if (!isMap(value)) return value;
  const found = { ...value };
  for (const field of ['data', 'stringData'])
    if (Object.hasOwn(found, field)) found[field] = hide(found[field]) as Json;
  const annotations = isMap(found['metadata']) ? found['metadata']['annotations'] : undefined;
  if (!isMap(annotations) || !Object.hasOwn(annotations, LAST_APPLIED)) return found;
  // kubectl apply keeps the whole object there.
  const metadata = {
    ...(found['metadata'] as JsonObject),
    annotations: { ...annotations, [LAST_APPLIED]: '••••••••' },
  };
  return { ...found, metadata };
}

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

export function YamlView({ value, isSecret = false }: { value: unknown; isSecret?: boolean }) {
  const [isHidden, setHidden] = useState(isSecret);
  const shownValue = useMemo(() => (isHidden ? masked(value) : value), [value, isHidden]);
  const text = useYaml(shownValue);
  const all = useMemo(() => lines(text ?? ''), [text]);
  const [folded, setFolded] = useState<Set<string> | null>(null);
  const [most, setMost] = useState(MOST_LINES);
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
  for (let at = 0; at < all.length && shown.length < most; at = isFolded(at) ? (all[at]?.end ?? at + 1) : at + 1) {
    shown.push(at);
  }
  const isCut = shown.length === most;
  const foldAll = (fold: boolean) => {
    setFolded(
      new Set(fold ? all.flatMap((line, at) => (line.end > at + 1 && line.indent === 0 ? [nameOf(at)] : [])) : []),
    );
  };
  return (
    <div class="yaml">
      <div class="yaml-actions">
        {isSecret && (
          <button type="button" class="quiet" aria-pressed={!isHidden} onClick={() => setHidden(!isHidden)}>
            {isHidden ? 'Show values' : 'Hide values'}
          </button>
        )}
        <button type="button" class="quiet" onClick={() => foldAll(true)}>
          Fold
        </button>
        <button type="button" class="quiet" onClick={() => foldAll(false)}>
          Unfold
        </button>
        <button type="button" class="quiet" onClick={() => copy(text, 'The YAML')}>
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
                <span class={`value ${kindOf(rest)}`}>{visible(rest)}</span>
                {closed && <span class="more"> … {line.end - at - 1} lines</span>}
              </span>
            </div>
          );
        })}
      </div>
      {isCut && (
        <button type="button" onClick={() => setMost(most * 4)}>
          Show more of {counted(all.length)} lines
        </button>
      )}
    </div>
  );
}
