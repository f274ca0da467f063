// Counts of objects by value. The server counts the whole selection, not only the page. A click filters by the value.

import { useEffect, useState } from 'preact/hooks';
import { isAborted, told } from '../../api/client';
import { type ListQuery, readGroups } from '../../api/lists';
import type { Json, ValueCounts } from '../../api/types';
import { text } from '../../lib/objects';
import { counted } from '../../lib/time';
import { visible } from '../../lib/visible';
import { literal, writtenIn } from '../../lib/paths';
import { toggleTerm } from './filters';

/** How many values are shown of a facet, at first and when all are wanted. */
const SHOWN = 6;
const MOST = 100;

function nameOf(value: Json | undefined): string {
  if (value === undefined || value === null) return '(none)';
  return visible(text(value)) || '(empty)';
}

export function titleOf(path: string): string {
  return path
    .replace(/^\./, '')
    .replace(/^metadata\.labels(?:\.|\[')?/, 'label ')
    .replace(/'\]$/, '');
}

function Facet(props: { query: ListQuery; path: string; revision: string; onRemove?: (() => void) | undefined }) {
  const { query, path, revision } = props;
  const [counts, setCounts] = useState<ValueCounts | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [all, setAll] = useState(false);
  // Without this filter, a facet would show only the value that its own term selects.
  const others = query.terms.filter((term) => writtenIn(path, term) === null);
  const chosenValues = query.terms.flatMap((term) => writtenIn(path, term) ?? []);
  const key = JSON.stringify([
    { ...query, terms: others, page: 0, sort: '', limit: 0, revision, token: '' },
    path,
    all,
  ]);
  useEffect(() => {
    const abort = new AbortController();
    const [asked] = JSON.parse(key) as [ListQuery];
    readGroups(asked, path, all ? MOST : SHOWN, abort.signal)
      .then((found) => {
        setCounts(found);
        setError(null);
      })
      .catch((failed: unknown) => {
        if (!isAborted(failed)) setError(failed);
      });
    return () => abort.abort();
  }, [key, path, all]);
  const largest = Math.max(1, ...(counts?.values.map((one) => one.count) ?? []));
  return (
    <section class="facet" aria-label={`Counts by ${titleOf(path)}`}>
      <h2>
        {titleOf(path)}
        {props.onRemove !== undefined && (
          <button
            type="button"
            class="quiet"
            aria-label={`Remove the counts by ${titleOf(path)}`}
            onClick={props.onRemove}
          >
            ✕
          </button>
        )}
      </h2>
      {error !== null && <p class="muted">{told(error)}</p>}
      <ul>
        {counts?.values.map((one) => {
          const term = one.value === null || one.value === undefined ? `not exists(${path})` : literal(one.value);
          const chosen = term !== undefined && chosenValues.includes(term);
          return (
            <li key={nameOf(one.value)}>
              <button
                type="button"
                aria-pressed={chosen}
                class={chosen ? 'chosen' : ''}
                onClick={() => toggleTerm(query, path, one.value)}
              >
                <span class="bar" style={{ width: `${(100 * one.count) / largest}%` }} />
                <span class="name" title={nameOf(one.value)}>
                  {nameOf(one.value)}
                </span>
                <span class="count">{counted(one.count)}</span>
              </button>
            </li>
          );
        })}
      </ul>
      {counts !== null && counts.totalValues > SHOWN && (
        <button type="button" class="quiet" onClick={() => setAll(!all)}>
          {all ? 'Show fewer' : `Show ${counted(Math.min(MOST, counts.totalValues))} values`}
        </button>
      )}
    </section>
  );
}

export interface FacetsProps {
  query: ListQuery;
  revision: string;
  usual: string[];
  labels: string[];
  added: string[];
  onAdd: (path: string) => void;
  onRemove: (path: string) => void;
}

export function Facets(props: FacetsProps) {
  const [text, setText] = useState('');
  const paths = [...new Set([...props.usual, ...props.labels, ...props.added])];
  return (
    <aside class="facets" aria-label="Counts">
      {paths.map((path) => (
        <Facet
          key={path}
          query={props.query}
          path={path}
          revision={props.revision}
          onRemove={props.added.includes(path) ? () => props.onRemove(path) : undefined}
        />
      ))}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim() !== '') props.onAdd(text.trim());
          setText('');
        }}
      >
        <input
          type="text"
          aria-label="Count by another path"
          placeholder="Count by .spec.…"
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </form>
    </aside>
  );
}
