// The events about an object, newest first.

import { useEffect, useState } from 'preact/hooks';
import { isAborted } from '../../api/client';
import { type ListQuery, type Page, readPage } from '../../api/lists';
import { isEnded } from '../../api/session';
import { text } from '../../lib/objects';
import { oneOf } from '../../lib/paths';
import { visible } from '../../lib/visible';
import { Problem } from '../../ui/problem';
import { Status } from '../../ui/status';
import { uidOf } from '../list/live';
import type { Subject } from './object';

const SHOWN = 50;
const COLUMNS = ['Last Seen', 'Type', 'Reason', 'Message', 'Count'];
/** How often they are read again, in milliseconds. */
const AGAIN = 10_000;

/** A value in a field selector. */
function escaped(value: string): string {
  return value.replaceAll(/[\\,=]/g, '\\$&');
}

/** The uid in events about this very object. Kubelets name nodes by their names, and some writers give none. */
function aboutTerm(uid: string, name: string): string {
  const path = '.involvedObject.uid';
  return oneOf(path, [uid, name, '', null]) ?? '';
}

export function Events({ subject }: { subject: Subject }) {
  const { namespace, name } = subject.of;
  const { uid } = subject.object.metadata;
  const { kind } = subject.object;
  const [page, setPage] = useState<Page | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const abort = new AbortController();
    const query: ListQuery = {
      collection: { group: '', version: 'v1', plural: 'events' },
      namespaces: namespace === '' ? [] : [namespace],
      labels: '',
      fields: `involvedObject.name=${escaped(name)},involvedObject.kind=${escaped(kind)}`,
      terms: [aboutTerm(uid ?? '', name)],
      where: '',
      search: '',
      sort: '-.lastTimestamp:time,-.metadata.creationTimestamp:time',
      limit: SHOWN,
      page: 1,
      revision: '',
      at: '',
      token: '',
    };
    const read = () => {
      if (isEnded()) return;
      readPage(query, abort.signal)
        .then((found) => {
          setPage(found);
          setError(null);
        })
        .catch((failed: unknown) => {
          if (!isAborted(failed)) setError(failed);
        });
    };
    read();
    const timer = setInterval(read, AGAIN);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [namespace, name, kind, uid]);
  if (error !== null && page === null) return <Problem error={error} />;
  if (page === null) return <p class="loading">Loading…</p>;
  if (page.rows.length === 0) return <p class="muted">No events tell of this object.</p>;
  const columns = COLUMNS.map((name) => page.columns.findIndex((column) => column.name === name));
  const [, typeAt] = columns;
  return (
    <table class="plain">
      <caption class="hidden">Events</caption>
      <thead>
        <tr>
          {COLUMNS.map((name) => (
            <th scope="col" key={name}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {page.rows.map((row) => (
          <tr key={uidOf(row)}>
            {columns.map((at) => (
              <td key={at} class={at === typeAt ? '' : 'prose'}>
                {at === typeAt ? <Status word={text(row.cells[at])} /> : visible(text(row.cells[at]))}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
