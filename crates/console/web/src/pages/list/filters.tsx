// Search, selectors and terms. Each field suggests values of existing objects.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { type ListQuery, readGroups, readSample } from '../../api/lists';
import type { Json, Row } from '../../api/types';
import { isMap } from '../../lib/json';
import { counted } from '../../lib/time';
import { literal, pathsIn, step, toggled, writtenIn } from '../../lib/paths';
import { go, place as current, type Place, withParams } from '../../state/router';
import { Suggest, type Suggestion } from '../../ui/suggest';

/** Changes what is asked; the list begins at its first page again. */
export function ask(place: Place, changes: Record<string, string | string[]>, replace = false): void {
  go(withParams(place, { page: '', ...changes }), { replace });
}

/** How long nobody types before the list is searched, in milliseconds. */
const PAUSE = 120;

function SearchField(props: { place: Place; value: string }) {
  const [text, setText] = useState(props.value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  /** Values that this field has asked for, and that have not come back as the value of the page yet. */
  const asked = useRef<string[]>([]);
  useEffect(() => {
    const at = asked.current.indexOf(props.value);
    // The user may have typed more since.
    if (at >= 0) asked.current.splice(0, at + 1);
    else setText(props.value);
  }, [props.value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      const next = value.trim();
      if (next !== (current.get().params.get('q') ?? '')) asked.current.push(next);
      ask(current.get(), { q: next }, true);
    }, PAUSE);
  };
  return (
    <input
      type="search"
      class="search"
      aria-label="Search names, labels, images and fields"
      placeholder="Search… ( / )"
      data-shortcut="/"
      spellcheck={false}
      autocomplete="off"
      value={text}
      onInput={(event) => typed(event.currentTarget.value)}
    />
  );
}

/** The labels of the page, and the values that the server counts for one of them. */
function useLabelSuggestions(query: ListQuery, rows: Row[]) {
  return useCallback(
    async (text: string, signal: AbortSignal): Promise<Suggestion[]> => {
      const at = text.lastIndexOf(',') + 1;
      const [before, last] = [text.slice(0, at), text.slice(at).trim()];
      const value = /^([^=!\s]+)\s*(==|=|!=)\s*(.*)$/.exec(last);
      if (value === null) {
        const keys = new Set(rows.flatMap((row) => Object.keys(row.object.metadata.labels ?? {})));
        const fitting = [...keys].filter((key) => key.includes(last)).sort();
        return fitting.map((key) => ({ value: `${before}${key}=`, label: key }));
      }
      const [, key = '', operator = '=', begun = ''] = value;
      const counts = await readGroups({ ...query, labels: '' }, `.metadata.labels${labelStep(key)}`, 200, signal);
      return counts.values.flatMap((one) =>
        typeof one.value === 'string' && one.value.includes(begun)
          ? [{ value: `${before}${key}${operator}${one.value}`, label: one.value, detail: counted(one.count) }]
          : [],
      );
    },
    [query, rows],
  );
}

function labelStep(key: string): string {
  return step(key);
}

const OPERATORS = ['==', '!=', 'in (', 'startsWith ', 'contains ', '>=', '<='];

/** The paths of some objects of the collection, and the values that the server counts for one of them. */
function useTermSuggestions(query: ListQuery) {
  const sample = useRef<{ of: string; paths: Promise<string[]> } | null>(null);
  return useCallback(
    async (text: string, signal: AbortSignal): Promise<Suggestion[]> => {
      const value = /^(.*?)([.\w[\]*'/-]+)\s*(==|=|!=)\s*'?([^']*)$/.exec(text);
      if (value !== null) {
        const [, before = '', path = '', operator = '', begun = ''] = value;
        const counts = await readGroups(query, path, 200, signal);
        return counts.values.flatMap((one) => {
          const written = literal(one.value);
          const name = isMap(one.value) || Array.isArray(one.value) ? '' : String(one.value);
          if (written === undefined || !name.includes(begun)) return [];
          const taken = `${before}${path} ${operator} ${written}`;
          return [{ value: taken, label: name, detail: counted(one.count) }];
        });
      }
      const last = /^(.*?)([.\w[\]*'/-]*)(\s*)$/.exec(text);
      const [, before = '', path = '', space = ''] = last ?? [];
      if (space !== '' && path !== '') {
        return OPERATORS.map((one) => ({ value: `${before}${path} ${one} `.replace(/ {2}$/, ' '), label: one }));
      }
      const of = `${query.collection.group}/${query.collection.version}/${query.collection.plural}/${query.namespaces.join(',')}`;
      if (sample.current?.of !== of) {
        sample.current = { of, paths: readSample(query).then(pathsIn, () => []) };
      }
      const fitting = (await sample.current.paths).filter((one) => one.toLowerCase().includes(path.toLowerCase()));
      return fitting.map((one) => ({ value: `${before}${one} == `, label: one }));
    },
    [query],
  );
}

export function Filters(props: { place: Place; query: ListQuery; rows: Row[]; extended: boolean }) {
  const { place, query, rows, extended } = props;
  const labels = useLabelSuggestions(query, rows);
  const terms = useTermSuggestions(query);
  return (
    <div class="filters" role="search" aria-label="Filters">
      {extended && <SearchField place={place} value={query.search} />}
      <Suggest
        label="Label selector"
        placeholder="Labels: app=web, tier!=cache"
        shortcut="l"
        value={query.labels}
        suggestions={labels}
        onTake={(text) => ask(current.get(), { labels: text })}
      />
      {extended && (
        <Suggest
          label="Add a filter on fields"
          placeholder="Fields: .status.phase == 'Running'"
          shortcut="F"
          value=""
          clears
          suggestions={terms}
          onTake={(text) => {
            const now = current.get().params.getAll('f');
            if (text !== '' && !now.includes(text)) ask(current.get(), { f: [...now, text] });
          }}
        />
      )}
      <Chips place={place} query={query} />
    </div>
  );
}

function Chips({ place, query }: { place: Place; query: ListQuery }) {
  const without = (term: string) => query.terms.filter((one) => one !== term);
  if (query.terms.length === 0 && query.where === '' && query.fields === '') return null;
  return (
    <ul class="chips" aria-label="Filters in use">
      {query.fields !== '' && (
        <Chip text={`field selector ${query.fields}`} onRemove={() => ask(place, { fields: '' })} />
      )}
      {query.where !== '' && <Chip text={`where ${query.where}`} onRemove={() => ask(place, { where: '' })} />}
      {query.terms.map((term) => (
        <Chip key={term} text={term} onRemove={() => ask(place, { f: without(term) })} />
      ))}
      <li>
        <button type="button" class="quiet" onClick={() => ask(place, { f: [], where: '', fields: '' })}>
          Clear
        </button>
      </li>
    </ul>
  );
}

function Chip(props: { text: string; onRemove: () => void }) {
  return (
    <li class="chip">
      <code>{props.text}</code>
      <button type="button" aria-label={`Remove the filter ${props.text}`} onClick={props.onRemove}>
        ✕
      </button>
    </li>
  );
}

/** Adds the value of a facet to the alternatives of its path, or takes it away. */
export function toggleTerm(query: ListQuery, path: string, value: Json | undefined): void {
  const before = query.terms.find((term) => writtenIn(path, term) !== null);
  const term = toggled(path, before, value);
  const at = before === undefined ? query.terms.length : query.terms.indexOf(before);
  const terms = query.terms.filter((one) => one !== before);
  if (term !== undefined) terms.splice(at, 0, term);
  ask(current.get(), { f: terms });
}
