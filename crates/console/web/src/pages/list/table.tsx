// The rows of a page, with the columns that the server sends. A click on a column head sorts.

import type { Resource } from '../../api/discovery';
import type { Page } from '../../api/lists';
import type { Column, Row } from '../../api/types';
import { isNumeric, type SortPaths } from '../../lib/columns';
import { text } from '../../lib/objects';
import { own } from '../../lib/own';
import { full } from '../../lib/time';
import { visible } from '../../lib/visible';
import { href } from '../../state/router';
import { type Changes, uidOf } from './live';
import { groupSegment, sortKeys } from './query';

export interface TableProps {
  resource: { group: string; version: string; plural: string };
  known: Resource | undefined;
  page: Page;
  changes: Changes;
  wide: boolean;
  withNamespace: boolean;
  sort: string;
  paths: SortPaths;
  onSort: (key: string, add: boolean) => void;
}

function shownColumns(page: Page, wide: boolean): { column: Column; at: number }[] {
  const all = page.columns.map((column, at) => ({ column, at }));
  return all.filter(({ column }) => wide || column.priority === 0);
}

export function objectHref(resource: TableProps['resource'], row: Row): string {
  const { name, namespace } = row.object.metadata;
  return href(['r', groupSegment(resource.group), resource.version, resource.plural, namespace ?? '-', name]);
}

function Head(props: { name: string; hint: string; numeric: boolean; path: string | undefined; table: TableProps }) {
  const { name, path, table } = props;
  const keys = sortKeys(table.sort);
  const [own] = sortKeys(path ?? '');
  const at = keys.findIndex((key) => key.path === own?.path);
  const key = keys[at];
  const order = key === undefined ? 'none' : key.descending ? 'descending' : 'ascending';
  const mark = key === undefined ? '' : key.descending ? ' ▼' : ' ▲';
  return (
    <th scope="col" class={props.numeric ? 'number' : ''} aria-sort={path === undefined ? undefined : order}>
      {path === undefined || !table.page.extended ? (
        <span title={props.hint}>{name}</span>
      ) : (
        <button
          type="button"
          title={`${props.hint}\n\nSort by ${path} (with shift: behind what it is sorted by)`}
          onClick={(event) => table.onSort(path, event.shiftKey)}
        >
          {name}
          <span aria-hidden="true">{mark + (keys.length > 1 && key !== undefined ? String(at + 1) : '')}</span>
        </button>
      )}
    </th>
  );
}

export function Rows(props: TableProps) {
  const { page, changes } = props;
  const columns = shownColumns(page, props.wide);
  const nameAt = Math.max(
    0,
    page.columns.findIndex((column) => column.format === 'name'),
  );
  return (
    <div class="table" role="region" aria-label="Objects" tabIndex={0}>
      <table aria-rowcount={page.total ?? -1}>
        <caption class="hidden">{`${props.resource.plural}, sorted by ${props.sort === '' ? 'name' : props.sort}`}</caption>
        <thead>
          <tr>
            {props.withNamespace && (
              <Head name="Namespace" hint="" numeric={false} path={own(props.paths, 'Namespace')} table={props} />
            )}
            {columns.map(({ column, at }) => (
              <Head
                key={at}
                name={visible(column.name)}
                hint={visible(column.description)}
                numeric={isNumeric(column)}
                path={own(props.paths, column.name)}
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
            const meta = row.object.metadata;
            return (
              <tr key={uid} class={mark} data-name={meta.name}>
                {props.withNamespace && <td>{meta.namespace}</td>}
                {columns.map(({ column, at }) => {
                  const cell = visible(text(row.cells[at]));
                  const isDate = column.type === 'date' && cell !== '';
                  return at === nameAt ? (
                    <th scope="row" key={at}>
                      <a href={objectHref(props.resource, row)}>{cell}</a>
                      {gone && <small> deleted</small>}
                      {mark === 'changed' && <small class="hidden"> changed</small>}
                    </th>
                  ) : (
                    <td key={at} class={isNumeric(column) ? 'number' : ''} title={isDate ? full(cell) : cell}>
                      {cell}
                    </td>
                  );
                })}
              </tr>
            );
          })}
        </tbody>
      </table>
      {page.rows.length === 0 && <p class="empty">Nothing here.</p>}
    </div>
  );
}
