// A list of any resource: built-in, custom or aggregated. The server sorts, selects, counts and pages; the console
// holds one page.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { hasCode } from '../../api/client';
import { discovery, findResource, fullName, type Resource } from '../../api/discovery';
import type { Row } from '../../api/types';
import { commonPaths, sortPaths, type SortPaths, usualFacets } from '../../lib/columns';
import { clock, counted } from '../../lib/time';
import { step } from '../../lib/paths';
import { go, place as current, type Place, withParams } from '../../state/router';
import { store, useStore } from '../../state/store';
import { useKeys, type Key } from '../../ui/keys';
import { Problem } from '../../ui/problem';
import { NamespaceField } from '../../ui/namespaces';
import { Facets } from './facets';
import { ask, Filters } from './filters';
import { changeCount, type Changes, showNewest, type Shown, usePage } from './live';
import { pageCount, Pager, toPage } from './pager';
import { isPast, sortedBy } from './query';
import { Rows } from './table';
import { TimeTravel, TimeTravelButton } from './travel';

/** Whether the newest state is shown by itself when something has changed. */
const following = store(false);
const wide = store(false);
const facetsShown = store(window.matchMedia('(min-width: 70rem)').matches);
/** How long changes are gathered before a followed page is read again, in milliseconds. */
const FOLLOWED = 1000;

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

function focusRow(by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>('.table tbody a')];
  const now = links.findIndex((link) => link === document.activeElement);
  const next = now < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(now + by, 0), links.length - 1);
  links[next]?.focus();
}

function focusField(shortcut: string): void {
  const field = document.querySelector<HTMLInputElement>(`[data-shortcut="${CSS.escape(shortcut)}"]`);
  field?.focus();
  field?.select();
}

function travel(shown: Shown): void {
  const here = current.get();
  if (isPast(here)) showNewest(here);
  else if (shown.page !== null) go(withParams(here, { rv: shown.page.revision }));
}

function keysOf(shown: Shown): Key[] {
  const here = () => current.get();
  const turn = (by: number) => {
    const to = shown.query.page + by;
    if (shown.page !== null && to >= 1 && to <= pageCount(shown.page, shown.query)) toPage(here(), to);
  };
  return [
    { keys: 'j', does: 'next row', run: () => focusRow(1) },
    { keys: 'k', does: 'previous row', run: () => focusRow(-1) },
    { keys: 'Enter', does: 'open the row that has the focus', run: () => focusRow(1) },
    { keys: '/', does: 'search', run: () => focusField('/') },
    { keys: 'l', does: 'filter by labels', run: () => focusField('l') },
    { keys: 'F', does: 'filter by fields', run: () => focusField('F') },
    { keys: 'N', does: 'choose the namespace', run: () => focusField('N') },
    { keys: '#', does: 'jump to a page', run: () => focusField('#') },
    { keys: 'n', does: 'next page', run: () => turn(1) },
    { keys: 'p', does: 'previous page', run: () => turn(-1) },
    { keys: 'r', does: 'show the newest state', run: () => showNewest(here()) },
    { keys: 'f', does: 'show or hide the counts', run: () => facetsShown.set(!facetsShown.get()) },
    { keys: 'w', does: 'show all columns, or those that matter', run: () => wide.set(!wide.get()) },
    { keys: 't', does: 'the list as it was, or as it is', run: () => travel(shown) },
    { keys: 'L', does: 'follow changes, or not', run: () => following.set(!following.get()) },
  ];
}

export function ListPage({ place }: { place: Place }) {
  const shown = usePage(place);
  const { query, page, error, changes } = shown;
  const { resources, loaded } = useStore(discovery);
  const { group, version, plural } = query.collection;
  const resource = useMemo(() => findResource(resources, group, version, plural), [resources, group, version, plural]);
  const paths = useSortPaths(resource);
  const isWide = useStore(wide);
  const withFacets = useStore(facetsShown);
  const labels = useMemo(() => usualLabels(page?.rows ?? []), [page]);
  const keys = useMemo(() => keysOf(shown), [shown]);
  useKeys(keys);
  const added = place.params.getAll('facet');
  const title = resource === undefined ? plural : resource.kind;
  useEffect(() => {
    document.title = `${fullName({ group, plural })} · keelson`;
  }, [group, plural]);
  const namespaced = resource?.namespaced ?? page?.rows.some((row) => row.object.metadata.namespace !== undefined);
  const isGone = hasCode(error, 410);
  return (
    <section class={`list${withFacets ? ' with-facets' : ''}`} aria-busy={shown.busy}>
      <header class="heading">
        <h1 tabIndex={-1}>
          {title}{' '}
          <small>
            {fullName({ group, plural })} · {version}
          </small>
        </h1>
        <div class="actions">
          {namespaced === true && <NamespaceField place={place} />}
          <button type="button" aria-pressed={isWide} title="All columns ( w )" onClick={() => wide.set(!isWide)}>
            Wide
          </button>
          <button
            type="button"
            aria-pressed={withFacets}
            title="Counts by value ( f )"
            onClick={() => facetsShown.set(!withFacets)}
          >
            Counts
          </button>
          <TimeTravelButton place={place} page={page} />
        </div>
      </header>
      <Filters place={place} query={query} rows={page?.rows ?? []} extended={page?.extended ?? true} />
      {isPast(place) && <TimeTravel place={place} query={query} page={page} />}
      {page !== null && error === null && <Snapshot place={place} shown={shown} />}
      {isGone && <Gone place={place} error={error} />}
      {error !== null && !isGone && (
        <Problem error={error}>
          {hasCode(error, 403) && namespaced === true && query.namespace === '' && (
            <p>
              This was about all namespaces at once. You may be allowed to list those of one: choose it above, or press{' '}
              <kbd>N</kbd>.
            </p>
          )}
          {hasCode(error, 404) && loaded && resource === undefined && <p>The server serves no such resource.</p>}
        </Problem>
      )}
      {page === null && error === null && <p class="loading">Loading…</p>}
      {page !== null && (error === null || isGone) && (
        <div class={`panes${isGone ? ' stale' : ''}`}>
          {withFacets && page.extended && !isGone && (
            <Facets
              query={query}
              revision={page.revision}
              usual={resource === undefined ? [] : usualFacets(resource, query.namespace)}
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
              wide={isWide}
              withNamespace={namespaced === true && query.namespace === ''}
              sort={query.sort}
              paths={paths}
              onSort={(key, add) => ask(place, { sort: sortedBy(query.sort, key, add) })}
            />
            <Pager place={place} query={query} page={page} />
          </div>
        </div>
      )}
    </section>
  );
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

function Snapshot({ place, shown }: { place: Place; shown: Shown }) {
  const { page, changes, query } = shown;
  const follows = useStore(following);
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
      {!past && (
        <label class="switch">
          <input type="checkbox" checked={follows} onChange={(event) => following.set(event.currentTarget.checked)} />{' '}
          follow
        </label>
      )}
    </div>
  );
}
