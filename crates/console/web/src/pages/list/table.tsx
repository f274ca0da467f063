// The rows of a page, with the columns that the server sends and those that the user added. A click on a head sorts.

import { Fragment } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Resource } from '../../api/discovery';
import type { Page } from '../../api/lists';
import type { Column, Row } from '../../api/types';
import { isNumeric, type SortPaths, sortOf } from '../../lib/columns';
import { toneOfRatio } from '../../lib/kinds';
import { objectHref } from '../../lib/links';
import { text } from '../../lib/objects';
import { own } from '../../lib/own';
import { valuesAt } from '../../lib/paths';
import { visible } from '../../lib/visible';
import { asksWhy, whyPod } from '../../lib/why';
import { type ColumnChoice, chooseColumns } from '../../state/choices';
import { Age } from '../../ui/age';
import { Status } from '../../ui/status';
import type { Extras } from './extras';
import { type Changes, uidOf } from './live';
import { sortKeys } from './query';

export interface TableProps {
  resource: { group: string; version: string; plural: string };
  known: Resource | undefined;
  page: Page;
  changes: Changes;
  wide: boolean;
  withNamespace: boolean;
  sort: string;
  paths: SortPaths;
  choice: ColumnChoice;
  extras: Extras;
  /** The path whose values divide the rows; empty for none. */
  groupBy: string;
  selected: ReadonlySet<string>;
  onSort: (key: string, add: boolean) => void;
  onSelect: (uids: string[], is: boolean) => void;
}

/** Columns whose words stand for a state. */
const STATES = ['Status', 'Phase', 'State', 'Health', 'Condition', 'Available', 'Established', 'Sync Status'];
const WHY: Column = { name: 'Why', type: 'string', format: '', description: 'Why it does not run', priority: 0 };

export interface Shown {
  column: Column;
  /** The place of its cell; undefined for a column that the server does not send. */
  at: number | undefined;
  /** The path of an added column. */
  path?: string;
}

/** The columns of a page, of which the user may have hidden some and added others. */
export function shownColumns(page: Page, wide: boolean, choice: ColumnChoice, isPods: boolean): Shown[] {
  const all = page.columns.map((column, at): Shown => ({ column, at }));
  const shown = all.filter(({ column }) => (wide || column.priority === 0) && !choice.hidden.includes(column.name));
  const added = choice.added.map((path): Shown => ({
    column: { ...WHY, name: path, description: path },
    at: undefined,
    path,
  }));
  const [status, ready] = ['Status', 'Ready'].map((name) => page.columns.findIndex((one) => one.name === name));
  const asks = page.rows.some((row) => asksWhy(text(row.cells[status ?? -1]), text(row.cells[ready ?? -1])));
  const why = isPods && asks && !choice.hidden.includes('Why') ? [{ column: WHY, at: undefined }] : [];
  const behind = shown.findIndex(({ column }) => column.name === 'Status') + 1;
  return [...shown.slice(0, behind), ...why, ...shown.slice(behind), ...added];
}

/** The text of a cell, as it is seen and exported. */
export function cellText(row: Row, { column, at, path }: Shown, extras: Extras): string {
  if (at !== undefined) return text(row.cells[at]);
  const object = extras.get(row.object.metadata.uid ?? '');
  if (object === undefined) return '';
  if (path !== undefined) return valuesAt(object, path).map(text).join(', ');
  return column === WHY ? whyPod(object) : '';
}

interface HeadProps {
  shown: Shown;
  path: string | undefined;
  table: TableProps;
  isName?: boolean;
}

function Head({ shown, path, table, isName = false }: HeadProps) {
  const { column } = shown;
  const keys = sortKeys(table.sort);
  const [ownKey] = sortKeys(path ?? '');
  const at = keys.findIndex((key) => key.path === ownKey?.path);
  const key = keys[at];
  // An age rises when its time falls.
  const rises = key?.descending === ownKey?.descending;
  const order = key === undefined ? 'none' : rises ? 'ascending' : 'descending';
  const mark = key === undefined ? '' : rises ? ' ▲' : ' ▼';
  const name = visible(column.name);
  const hint = visible(column.description);
  const resource = table.known === undefined ? '' : `${table.known.plural}.${table.known.group}`;
  const width = own(table.choice.widths, column.name);
  return (
    <th
      scope="col"
      class={`${isNumeric(column) ? 'number' : ''}${isName ? ' name-column' : ''}`}
      style={width === undefined ? {} : { width: `${width}px`, minWidth: `${width}px`, maxWidth: `${width}px` }}
      aria-sort={path === undefined ? undefined : order}
    >
      {path === undefined || !table.page.extended ? (
        <span title={hint}>{name}</span>
      ) : (
        <button
          type="button"
          title={`${hint}\n\nSort (with shift: behind what it is sorted by)`}
          onClick={(event) => table.onSort(path, event.shiftKey)}
        >
          {name}
          <span class="mark" aria-hidden="true">
            {mark + (keys.length > 1 && key !== undefined ? String(at + 1) : '')}
          </span>
        </button>
      )}
      {resource !== '' && <Grip name={column.name} resource={resource} choice={table.choice} />}
    </th>
  );
}

/** The edge of a head, with which its column is made wider or narrower. A double click gives it its own width again. */
function Grip({ name, resource, choice }: { name: string; resource: string; choice: ColumnChoice }) {
  const from = useRef<{ x: number; width: number } | null>(null);
  const set = (widths: Record<string, number>) => chooseColumns(resource, { widths });
  return (
    <span
      class="grip"
      aria-hidden="true"
      onPointerDown={(event) => {
        const head = event.currentTarget.parentElement;
        from.current = { x: event.clientX, width: head?.offsetWidth ?? 100 };
        event.currentTarget.setPointerCapture(event.pointerId);
        event.preventDefault();
      }}
      onPointerMove={(event) => {
        if (from.current === null) return;
        const width = Math.min(Math.max(from.current.width + event.clientX - from.current.x, 48), 1200);
        set({ ...choice.widths, [name]: Math.round(width) });
      }}
      onPointerUp={() => {
        from.current = null;
      }}
      onDblClick={() => set(Object.fromEntries(Object.entries(choice.widths).filter(([column]) => column !== name)))}
    />
  );
}

function Cell({ row, shown, extras }: { row: Row; shown: Shown; extras: Extras }) {
  const { column } = shown;
  const cell = cellText(row, shown, extras);
  const created = row.object.metadata.creationTimestamp;
  if (column.name === 'Age' && shown.at !== undefined && created !== undefined && cell !== '')
    return <Age since={created} />;
  if (column.type === 'date' && cell !== '') return <Age since={cell} />;
  if (STATES.includes(column.name) && shown.at !== undefined) return <Status word={brief(cell)} />;
  if (column.name === 'Type' && (cell === 'Normal' || cell === 'Warning')) return <Status word={cell} />;
  const tone = column.name === 'Ready' || column.name === 'Completions' ? toneOfRatio(cell) : undefined;
  if (tone !== undefined) return <span class={`is-${tone}`}>{cell}</span>;
  if (column === WHY) return <span class="why">{brief(cell)}</span>;
  if (cell === '<none>') return <span class="none">–</span>;
  return <>{brief(cell)}</>;
}

/** How many characters of a cell are shown. The whole text is in the object and in exported files. */
const SHOWN = 300;

function brief(cell: string): string {
  return visible(cell.length > SHOWN ? `${cell.slice(0, SHOWN)}…` : cell);
}

export function Rows(props: TableProps) {
  const { page, changes, selected, extras, groupBy } = props;
  const columns = shownColumns(
    page,
    props.wide,
    props.choice,
    props.known?.plural === 'pods' && props.known.group === '',
  );
  const nameAt = Math.max(
    0,
    page.columns.findIndex((column) => column.format === 'name'),
  );
  const uids = page.rows.map(uidOf);
  const all = uids.length > 0 && uids.every((uid) => selected.has(uid));
  const some = !all && uids.some((uid) => selected.has(uid));
  const everything = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (everything.current !== null) everything.current.indeterminate = some;
  }, [some]);
  let group: string | undefined;
  const span = columns.length + (props.withNamespace ? 2 : 1);
  return (
    <div class="table" role="region" aria-label="Objects" tabIndex={0}>
      <table aria-rowcount={page.total ?? -1}>
        <caption class="hidden">{`${props.resource.plural}, sorted by ${props.sort === '' ? 'name' : props.sort}`}</caption>
        <thead>
          <tr>
            <td class="mark-column">
              <label class="mark-label">
                <input
                  ref={everything}
                  type="checkbox"
                  aria-label="Select all rows of the page"
                  checked={all}
                  onChange={(event) => props.onSelect(uids, event.currentTarget.checked)}
                />
              </label>
            </td>
            {props.withNamespace && (
              <Head
                shown={{ column: { ...WHY, name: 'Namespace', description: '' }, at: undefined }}
                path=".metadata.namespace"
                table={props}
              />
            )}
            {columns.map((shown) => (
              <Head
                key={`${shown.at ?? ''} ${shown.column.name}`}
                shown={shown}
                isName={shown.at === nameAt}
                path={shown.at === undefined ? shown.path : sortOf(props.paths, shown.column)}
                table={props}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {page.rows.map((before) => {
            const uid = uidOf(before);
            const row = changes.rows.get(uid) ?? before;
            const gone = changes.deleted.has(uid);
            const mark = gone ? 'gone' : row === before ? '' : 'changed';
            const { name, namespace } = row.object.metadata;
            const value = groupBy === '' ? undefined : groupOfRow(row, groupBy, extras);
            const begins = value !== undefined && value !== group;
            if (value !== undefined) group = value;
            return (
              <Fragment key={uid}>
                {begins && (
                  <tr class="group">
                    <th colSpan={span} scope="rowgroup">
                      {visible(value)}
                    </th>
                  </tr>
                )}
                <tr class={mark} data-name={name} aria-selected={selected.has(uid)}>
                  <td class="mark-column">
                    <label class="mark-label">
                      <input
                        type="checkbox"
                        tabIndex={-1}
                        aria-label={`Select ${brief(name)}`}
                        checked={selected.has(uid)}
                        onChange={(event) => props.onSelect([uid], event.currentTarget.checked)}
                      />
                    </label>
                  </td>
                  {props.withNamespace && <td data-label="Namespace">{visible(namespace ?? '')}</td>}
                  {columns.map((shown) =>
                    shown.at === nameAt ? (
                      <th scope="row" key="name" class="name-column">
                        <a href={objectHref(props.resource, namespace, name)} title={brief(name)}>
                          {brief(text(row.cells[nameAt]))}
                        </a>
                        {gone && <small> deleted</small>}
                        {mark === 'changed' && <small class="hidden"> changed</small>}
                      </th>
                    ) : (
                      <td
                        key={`${shown.at ?? ''} ${shown.column.name}`}
                        data-label={shown.column.name}
                        class={`${isNumeric(shown.column) ? 'number' : ''}${shown.column === WHY ? ' why-column' : ''}`}
                        title={
                          shown.column.type === 'date' || shown.column.name === 'Age'
                            ? undefined
                            : brief(cellText(row, shown, extras))
                        }
                      >
                        <Cell row={row} shown={shown} extras={extras} />
                      </td>
                    ),
                  )}
                </tr>
              </Fragment>
            );
          })}
        </tbody>
      </table>
      {page.rows.length === 0 && <p class="empty">Nothing here.</p>}
    </div>
  );
}

/** The value that a row belongs to. */
export function groupOfRow(row: Row, path: string, extras: Extras): string | undefined {
  if (path === '.metadata.namespace') return row.object.metadata.namespace ?? '(none)';
  const object = extras.get(row.object.metadata.uid ?? '');
  if (object === undefined) return undefined;
  return valuesAt(object, path).map(text).join(', ') || '(none)';
}
