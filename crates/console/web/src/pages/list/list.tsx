// A list of any resource: built-in, custom or aggregated. The server sorts, selects, counts and pages; the console
// holds one page.

import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import { getJson, hasCode, METADATA_LIST } from '../../api/client';
import { discovery, findResource, fullName, type Resource } from '../../api/discovery';
import { objectPath } from '../../api/paths';
import type { ObjectMeta, Row } from '../../api/types';
import { commonPaths, sortPaths, type SortPaths, usualFacets } from '../../lib/columns';
import { bind, type Key } from '../../lib/keymap';
import { pluralOf } from '../../lib/kinds';
import { step } from '../../lib/paths';
import { clock, counted } from '../../lib/time';
import { visible } from '../../lib/visible';
import { choices, columnsFor, noteRecent } from '../../state/choices';
import { go, place as current, type Place, rememberPage, withParams } from '../../state/router';
import { useStore } from '../../state/store';
import { Icon } from '../../ui/icon';
import { useKeys } from '../../ui/keys';
import { useChosenNamespaces } from '../../ui/namespaces';
import { Problem } from '../../ui/problem';
import { BulkBar } from './bulk';
import { extraPaths, useExtras } from './extras';
import { Facets } from './facets';
import { ask, Filters } from './filters';
import { lastList } from './last';
import { changeCount, type Changes, showNewest, type Shown, uidOf, usePage } from './live';
import { pageCount, Pager, toPage } from './pager';
import { isOn, isPast, momentOf, revisionOf, sortedBy } from './query';
import { Rows } from './table';
import { listDialog, ToolsMenu, toggleView } from './tools';
import { TimeTravel, TimeTravelButton } from './travel';

/** How long changes are gathered before a followed page is read again, in milliseconds. */
const FOLLOWED = 1000;
const hasRoom = window.matchMedia('(min-width: 70rem)');

interface View {
  wide: boolean;
  counts: boolean;
  follows: boolean;
}

/** How the list is shown. All of it is in the address. */
function viewOf({ params }: Place): View {
  return {
    wide: isOn(params, 'wide', false),
    counts: isOn(params, 'counts', hasRoom.matches),
    follows: isOn(params, 'follow', false),
  };
}

function useSortPaths(resource: Resource | undefined): SortPaths {
  const [paths, setPaths] = useState<SortPaths>(commonPaths);
  useEffect(() => {
    let current = true;
    setPaths(commonPaths);
    if (resource !== undefined) void sortPaths(resource).then((found) => current && setPaths(found));
    return () => {
      current = false;
    };
  }, [resource]);
  return paths;
}

/** The labels that many objects of the page have with different values: what they can be divided by. */
function usualLabels(rows: Row[]): string[] {
  const values = new Map<string, Set<string>>();
  const counts = new Map<string, number>();
  for (const row of rows) {
    for (const [key, value] of Object.entries(row.object.metadata.labels ?? {})) {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      values.set(key, (values.get(key) ?? new Set()).add(value));
    }
  }
  const divides = (key: string) => (values.get(key)?.size ?? 0) <= Math.max(3, (counts.get(key) ?? 0) / 2);
  const often = [...counts.entries()].filter(([key, count]) => count > rows.length / 4 && divides(key));
  return often
    .sort((a, b) => b[1] - a[1])
    .slice(0, 2)
    .map(([key]) => `.metadata.labels${step(key)}`);
}

function links(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>('.table tbody .name-column a')];
}

function focusRow(by: number): void {
  const all = links();
  const now = all.findIndex((link) => link === document.activeElement);
  const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1);
  all[next]?.focus();
}

/** Puts the focus into a field, which may be behind a button in a narrow window. */
function focusField(shortcut: string): void {
  const find = () => document.querySelector<HTMLInputElement>(`[data-shortcut="${CSS.escape(shortcut)}"]`);
  const focus = () => {
    find()?.focus();
    find()?.select();
  };
  // At once, so that the field has the next keys. A hidden field appears with the next frame.
  if (find()?.offsetParent !== null) {
    focus();
    return;
  }
  document.querySelector<HTMLElement>('.filters-button')?.click();
  requestAnimationFrame(focus);
}

function travel(shown: Shown): void {
  const here = current.get();
  if (isPast(here)) showNewest(here);
  else if (shown.page !== null) go(withParams(here, { rv: shown.page.revision }));
}

interface Selection {
  selected: ReadonlySet<string>;
  select: (uids: string[], is: boolean) => void;
}

function keysOf(shown: Shown, selection: Selection): Key[] {
  const here = () => current.get();
  const turn = (by: number) => {
    const to = shown.query.page + by;
    if (shown.page !== null && to >= 1 && to <= pageCount(shown.page, shown.query)) toPage(here(), to);
  };
  const rows = shown.page?.rows.map(uidOf) ?? [];
  const selectFocused = () => {
    const row = document.activeElement?.closest('tr');
    const at = [...document.querySelectorAll('.table tbody tr[data-name]')].findIndex((one) => one === row);
    const uid = rows[at];
    if (uid !== undefined) selection.select([uid], !selection.selected.has(uid));
  };
  const turnView = (name: 'wide' | 'counts' | 'follow', is: (view: View) => boolean) => () =>
    toggleView(here(), name, !is(viewOf(here())));
  return bind('list', {
    j: () => focusRow(1),
    k: () => focusRow(-1),
    Enter: () => focusRow(1),
    x: selectFocused,
    X: () => selection.select(rows, !rows.every((uid) => selection.selected.has(uid))),
    '/': () => focusField('/'),
    l: () => focusField('l'),
    F: () => focusField('F'),
    '#': () => focusField('#'),
    n: () => turn(1),
    p: () => turn(-1),
    r: () => showNewest(here()),
    f: turnView('counts', ({ counts }) => counts),
    w: turnView('wide', ({ wide }) => wide),
    C: () => listDialog.set('columns'),
    t: () => travel(shown),
    L: turnView('follow', ({ follows }) => follows),
  });
}

/** The selected rows, with their metadata. They outlast other pages of the list, and go with the list. */
function useSelection(shown: Shown, place: Place): Selection & { chosen: ObjectMeta[]; clear: () => void } {
  const [chosen, setChosen] = useState<Map<string, ObjectMeta>>(new Map());
  const { group, version, plural } = shown.query.collection;
  const { namespaces, labels, fields, terms, where, search, at } = shown.query;
  const rv = revisionOf(place.params);
  // Rows that are no longer shown, or that were of another time, are not acted on.
  const list = JSON.stringify([group, version, plural, namespaces, labels, fields, terms, where, search, at, rv]);
  useEffect(() => setChosen(new Map()), [list]);
  const select = (uids: string[], is: boolean) =>
    setChosen((before) => {
      const next = new Map(before);
      for (const uid of uids) {
        const row = shown.page?.rows.find((one) => uidOf(one) === uid);
        if (is && row !== undefined) next.set(uid, row.object.metadata);
        else next.delete(uid);
      }
      return next;
    });
  const clear = useCallback(() => setChosen(new Map()), []);
  const selected = useMemo(() => new Set(chosen.keys()), [chosen]);
  return { selected, select, chosen: [...chosen.values()], clear };
}

/** Goes back to where the rows were scrolled to, and remembers it when the page is left. */
function useLeft(place: Place, isThere: boolean): void {
  const { left } = place.state;
  useEffect(() => {
    const rows = () => document.querySelector('.table');
    if (isThere && left !== undefined) {
      rows()?.scrollTo(0, left.top);
      const row =
        left.row === '' ? null : document.querySelector(`tr[data-name="${CSS.escape(left.row)}"] .name-column a`);
      if (row instanceof HTMLElement) row.focus({ preventScroll: true });
    }
    return rememberPage(() => {
      const row = document.activeElement?.closest('tr');
      return { top: rows()?.scrollTop ?? 0, row: row instanceof HTMLElement ? (row.dataset['name'] ?? '') : '' };
    });
    // Only once for each step, when its rows are there.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [place.visit, isThere]);
}

export function ListPage({ place }: { place: Place }) {
  const shown = usePage(place);
  const { query, page, error, changes } = shown;
  const { resources, loaded } = useStore(discovery);
  const { density } = useStore(choices);
  const { group, version, plural } = query.collection;
  const resource = useMemo(() => findResource(resources, group, version, plural), [resources, group, version, plural]);
  const paths = useSortPaths(resource);
  const view = viewOf(place);
  const labels = useMemo(() => usualLabels(page?.rows ?? []), [page]);
  const selection = useSelection(shown, place);
  const keys = useMemo(() => keysOf(shown, selection), [shown, selection]);
  useKeys(keys);
  const [filtersOpen, setFiltersOpen] = useState(false);
  const added = place.params.getAll('facet');
  const groupBy = place.params.get('group') ?? '';
  const title = resource === undefined ? plural : pluralOf(resource.kind);
  const namespaced = resource?.namespaced ?? page?.rows.some((row) => row.object.metadata.namespace !== undefined);
  useChosenNamespaces(place.params, resource?.namespaced);
  useEffect(() => {
    document.title = `${fullName({ group, plural })} · keelson`;
    const where = place.params.get('ns') ?? '';
    const name = fullName({ group, plural }) + (where === '' ? '' : ` in ${where}`);
    noteRecent({ name, to: window.location.pathname + window.location.search });
    lastList.set(`${group}/${version}/${plural}`, window.location.pathname + window.location.search);
  }, [group, version, plural, place]);
  const isGone = hasCode(error, 410);
  const choice = columnsFor(resource === undefined ? '' : `${resource.plural}.${resource.group}`);
  const extras = useExtras(
    query,
    page,
    extraPaths(page, plural, group, [...choice.added, ...(groupBy === '' ? [] : [groupBy])]),
  );
  useLeft(place, page !== null);
  const withNamespace = namespaced === true && query.namespaces.length !== 1;
  const wrongRevision = place.params.has('rv') && revisionOf(place.params) === '';
  const wrongMoment = place.params.has('at') && momentOf(place.params) === '';
  const inUse =
    [query.search, query.labels, query.fields, query.where].filter((one) => one !== '').length + query.terms.length;
  return (
    <section class={`list${view.counts ? ' with-facets' : ''} ${density}`} aria-busy={shown.busy}>
      <header class="heading">
        <h1 tabIndex={-1}>
          {visible(title)}{' '}
          <small>
            {fullName({ group, plural })} · {version}
          </small>
        </h1>
        <div class="actions">
          <button
            type="button"
            class="filters-button"
            aria-expanded={filtersOpen}
            onClick={() => setFiltersOpen(!filtersOpen)}
          >
            <Icon name="filter" /> Filters{inUse > 0 && ` (${inUse})`}
          </button>
          <button
            type="button"
            aria-pressed={view.wide}
            title="All columns ( w )"
            onClick={() => toggleView(place, 'wide', !view.wide)}
          >
            <Icon name="columns" /> <span>Wide</span>
          </button>
          <button
            type="button"
            aria-pressed={view.counts}
            title="Counts by value ( f )"
            onClick={() => toggleView(place, 'counts', !view.counts)}
          >
            <Icon name="chart" /> <span>Counts</span>
          </button>
          <TimeTravelButton place={place} page={page} />
          <ToolsMenu
            place={place}
            query={query}
            page={page}
            known={resource}
            wide={view.wide}
            extras={extras}
            withNamespace={withNamespace}
          />
        </div>
      </header>
      <div class={filtersOpen ? 'filters-open' : ''}>
        <Filters place={place} query={query} rows={page?.rows ?? []} extended={page?.extended ?? true} />
      </div>
      {wrongRevision && (
        <p class="notice">
          The address names a revision that is none: <code>{visible(place.params.get('rv') ?? '')}</code>. The newest
          state is shown.
        </p>
      )}
      {wrongMoment && (
        <p class="notice">
          The address names a time that is none: <code>{visible(place.params.get('at') ?? '')}</code>. The newest state
          is shown.
        </p>
      )}
      {isPast(place) && <TimeTravel place={place} query={query} page={page} />}
      {page !== null && error === null && <Snapshot place={place} shown={shown} follows={view.follows} />}
      {isGone && <Gone place={place} error={error} />}
      {error !== null && !isGone && (
        <Problem error={error}>
          {hasCode(error, 403) && namespaced === true && query.namespaces.length !== 1 && (
            <p>
              This was about {query.namespaces.length === 0 ? 'all' : 'several'} namespaces at once. You may be allowed
              to list those of one: choose it above, or press <kbd>N</kbd>.
            </p>
          )}
          {hasCode(error, 404) && loaded && resource === undefined && <p>The server serves no such resource.</p>}
        </Problem>
      )}
      {page === null && error === null && <Skeleton />}
      {page !== null && (error === null || isGone) && (
        <div class={`panes${isGone ? ' stale' : ''}`}>
          {view.counts && page.extended && !isGone && (
            <Facets
              query={query}
              revision={page.revision}
              usual={resource === undefined ? [] : usualFacets(resource, query.namespaces.length === 1)}
              labels={labels}
              added={added}
              onAdd={(path) => go(withParams(place, { facet: [...added, path] }), { state: place.state })}
              onRemove={(path) =>
                go(withParams(place, { facet: added.filter((one) => one !== path) }), { state: place.state })
              }
            />
          )}
          <div class="rows">
            <Rows
              resource={query.collection}
              known={resource}
              page={page}
              changes={changes}
              wide={view.wide}
              withNamespace={withNamespace}
              sort={query.sort}
              paths={paths}
              choice={choice}
              extras={extras}
              groupBy={groupBy}
              selected={selection.selected}
              onSelect={selection.select}
              onSort={(key, add) => ask(place, { sort: sortedBy(place.params.get('sort') ?? '', key, add) })}
            />
            {page.rows.length === 0 && <Empty place={place} shown={shown} inUse={inUse > 0} />}
            <Pager place={place} query={query} page={page} />
          </div>
        </div>
      )}
      {resource !== undefined && selection.chosen.length > 0 && !isPast(place) && (
        <BulkBar resource={resource} chosen={selection.chosen} onClear={selection.clear} />
      )}
    </section>
  );
}

/** The frame of a list whose rows are on their way. */
function Skeleton() {
  return (
    <div class="skeleton" role="status" aria-label="Loading…">
      {Array.from({ length: 12 }, (_, at) => (
        <span key={at} />
      ))}
    </div>
  );
}

/** Says why there are no rows: a page behind the last, a namespace that is not there, filters, or nothing at all. */
function Empty({ place, shown, inUse }: { place: Place; shown: Shown; inUse: boolean }) {
  const { query, page } = shown;
  const [missing, setMissing] = useState('');
  const [namespace = ''] = query.namespaces;
  const isBehind = page !== null && (page.total ?? 0) > 0;
  useEffect(() => {
    setMissing('');
    if (isBehind || inUse || query.namespaces.length !== 1) return;
    const abort = new AbortController();
    const path = objectPath({ group: '', version: 'v1', plural: 'namespaces' }, '', namespace);
    getJson(path, { signal: abort.signal, accept: METADATA_LIST.replace('List', '') }).catch((error: unknown) => {
      if (hasCode(error, 404)) setMissing(namespace);
    });
    return () => abort.abort();
  }, [namespace, isBehind, inUse, query.namespaces.length]);
  if (page !== null && isBehind) {
    const last = pageCount(page, query);
    return (
      <p class="empty-hint" role="status">
        There is no page {counted(query.page)}.{' '}
        <a href={withParams(place, { page: last === 1 ? '' : String(last) })}>The last one is {counted(last)}</a>
      </p>
    );
  }
  if (missing !== '') {
    return (
      <p class="empty-hint" role="status">
        There is no namespace {visible(missing)}.
      </p>
    );
  }
  return inUse ? (
    <p class="empty-hint">
      No object fits the filters.{' '}
      <a href={withParams(place, { q: '', labels: '', fields: '', f: [], where: '', page: '' })}>Show all</a>
    </p>
  ) : null;
}

/** The snapshot that is looked for is no longer kept: what was shown stays, and one click shows the newest. */
function Gone({ place, error }: { place: Place; error: unknown }) {
  return (
    <Problem error={error}>
      <p>The server keeps the past for a while only. What is shown below is from before.</p>
      <button type="button" class="main" autofocus onClick={() => showNewest(place)}>
        Show the newest state
      </button>
    </Problem>
  );
}

function changesText({ counts }: Changes): string {
  const parts = [
    counts.added > 0 ? `${counted(counts.added)} new` : '',
    counts.modified > 0 ? `${counted(counts.modified)} changed` : '',
    counts.deleted > 0 ? `${counted(counts.deleted)} deleted` : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function Snapshot({ place, shown, follows }: { place: Place; shown: Shown; follows: boolean }) {
  const { page, changes, query } = shown;
  const some = changeCount(changes) > 0 || changes.lost !== null;
  const past = isPast(place);
  useEffect(() => {
    if (!follows || !some || past) return;
    const timer = setTimeout(() => showNewest(current.get()), FOLLOWED);
    return () => clearTimeout(timer);
  }, [follows, some, past, place]);
  const taken = place.state.snapshot?.taken;
  return (
    <div class="snapshot">
      <p>
        {past ? 'Past state' : 'Snapshot'} <code title="resourceVersion">{page?.revision}</code>
        {!past && taken !== undefined && ` of ${clock(taken)}`}
        {page?.lookedAt !== undefined && page.lookedAt > 0 && (
          <small title="How many objects the server looked at to answer"> · looked at {counted(page.lookedAt)}</small>
        )}
        {page !== null && <small> · {Math.round(page.milliseconds)} ms</small>}
        {query.search !== '' && query.sort === '' && <small> · best matches first</small>}
      </p>
      <p class="changes" role="status" aria-live="polite">
        {changes.lost === 'many' && 'Too many changes to follow one by one'}
        {changes.lost === 'gone' && 'The server no longer knows what changed since'}
        {changes.lost === null && some && `${changesText(changes)} since`}
      </p>
      {some && (
        <button type="button" class="main" onClick={() => showNewest(place)}>
          Show the newest state
        </button>
      )}
      {!past && changes.brokenSince !== null && (
        <p class="not-live" role="status">
          <Icon name="warn" /> Not live since {clock(changes.brokenSince)}
        </p>
      )}
      {!past && (
        <label class="switch">
          <input
            type="checkbox"
            checked={follows}
            onChange={(event) => toggleView(place, 'follow', event.currentTarget.checked)}
          />{' '}
          follow
        </label>
      )}
    </div>
  );
}
