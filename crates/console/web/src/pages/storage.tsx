// The storage versions of resources, the agreement of the servers on them, and the progress of migrations.

import { useEffect, useState } from 'preact/hooks';
import { getJson, hasCode, isAborted } from '../api/client';
import { isEnded } from '../api/session';
import type { KubeObject, ObjectList } from '../api/types';
import { at, text } from '../lib/objects';
import { objectHref } from '../lib/links';
import { Problem } from '../ui/problem';

/** How often it is read again, in milliseconds. */
const AGAIN = 3000;
const VERSIONS = '/apis/internal.apiserver.k8s.io/v1alpha1/storageversions';
const MIGRATIONS = ['/apis/storagemigration.k8s.io/v1beta1', '/apis/storagemigration.k8s.io/v1alpha1'];

const MIGRATED = { group: 'storagemigration.k8s.io', version: 'v1beta1', plural: 'storageversionmigrations' };

interface Storage {
  versions: KubeObject[] | null;
  migrations: KubeObject[] | null;
  errors: { versions: unknown; migrations: unknown };
}

async function all(path: string, signal: AbortSignal): Promise<KubeObject[]> {
  return (await getJson<ObjectList>(path, { signal })).items;
}

async function migrations(signal: AbortSignal): Promise<KubeObject[]> {
  let last: unknown = null;
  for (const version of MIGRATIONS) {
    try {
      return await all(`${version}/storageversionmigrations`, signal);
    } catch (error) {
      last = error;
    }
  }
  throw last;
}

function useStorage(): Storage {
  const [storage, setStorage] = useState<Storage>({
    versions: null,
    migrations: null,
    errors: { versions: null, migrations: null },
  });
  useEffect(() => {
    const abort = new AbortController();
    const failed = (part: 'versions' | 'migrations') => (error: unknown) => {
      if (isAborted(error)) return;
      setStorage((now) => ({ ...now, errors: { ...now.errors, [part]: error } }));
    };
    const read = () => {
      if (isEnded()) return;
      all(VERSIONS, abort.signal)
        .then((versions) => setStorage((now) => ({ ...now, versions, errors: { ...now.errors, versions: null } })))
        .catch(failed('versions'));
      migrations(abort.signal)
        .then((found) =>
          setStorage((now) => ({ ...now, migrations: found, errors: { ...now.errors, migrations: null } })),
        )
        .catch(failed('migrations'));
    };
    read();
    const timer = setInterval(read, AGAIN);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, []);
  return storage;
}

export function StoragePage() {
  const { versions, migrations: moved, errors } = useStorage();
  useEffect(() => {
    document.title = 'Storage · keelson';
  }, []);
  return (
    <section class="storage">
      <h1 tabIndex={-1}>Storage</h1>
      <h2>Migrations</h2>
      {errors.migrations !== null && <Problem error={errors.migrations} />}
      {moved !== null && <Migrations all={moved} />}
      <h2>Storage versions</h2>
      {hasCode(errors.versions, 404) ? (
        <div class="panel empty">
          <p>
            This server does not publish its storage versions. The API <code>internal.apiserver.k8s.io/v1alpha1</code>{' '}
            serves them where <code>--runtime-config</code> or a feature gate turns it on.
          </p>
        </div>
      ) : (
        errors.versions !== null && <Problem error={errors.versions} />
      )}
      {versions !== null && <Versions all={versions} />}
    </section>
  );
}

function conditionsOf(object: KubeObject): { type: string; status: string; message: string }[] {
  const found = at(object, 'status', 'conditions');
  return (Array.isArray(found) ? (found as unknown[]) : []).map((one) => ({
    type: text(at(one, 'type')),
    status: text(at(one, 'status')),
    message: text(at(one, 'message')),
  }));
}

function Migrations({ all: list }: { all: KubeObject[] }) {
  if (list.length === 0) return <p class="muted">Nothing is being written anew.</p>;
  return (
    <table class="plain">
      <caption class="hidden">Migrations</caption>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Resource</th>
          <th scope="col">State</th>
          <th scope="col">Progress</th>
        </tr>
      </thead>
      <tbody>
        {list.map((one) => {
          const holds = conditionsOf(one).filter(({ status }) => status === 'True');
          const state = holds.at(-1);
          const resource = at(one, 'spec', 'resource');
          const { name } = one.metadata;
          return (
            <tr key={one.metadata.uid}>
              <th scope="row">
                <a href={objectHref(MIGRATED, '', name)}>{name}</a>
              </th>
              <td>
                {[text(at(resource, 'resource')), text(at(resource, 'group'))].filter((part) => part !== '').join('.')}
              </td>
              <td title={state?.message}>{state?.type ?? 'Waiting'}</td>
              <td>
                <Progress of={one} />
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function Progress({ of }: { of: KubeObject }) {
  const annotations = of.metadata.annotations ?? {};
  const number = (end: string) => {
    const found = Object.entries(annotations).find(([key]) => key.endsWith(end));
    return found === undefined ? undefined : Number(found[1]);
  };
  const [done, total] = [number('/objects-done'), number('/objects-total')];
  if (done === undefined || total === undefined) return <>—</>;
  return (
    <>
      <progress value={done} max={Math.max(1, total)} aria-label={`${done} of ${total}`} /> {done} of {total}
    </>
  );
}

interface Encoding {
  server: string;
  encodes: string;
  decodes: string[];
}

function encodings(object: KubeObject): Encoding[] {
  const found = at(object, 'status', 'storageVersions');
  return (Array.isArray(found) ? (found as unknown[]) : []).map((one) => {
    const decodes = at(one, 'decodableVersions');
    return {
      server: text(at(one, 'apiServerID')),
      encodes: text(at(one, 'encodingVersion')),
      decodes: Array.isArray(decodes) ? decodes.map(text) : [],
    };
  });
}

/** The short name of a server in the table: its place in the list above. */
function shortOf(servers: string[], server: string): string {
  return `Server ${servers.indexOf(server) + 1}`;
}

function Versions({ all: list }: { all: KubeObject[] }) {
  const [only, setOnly] = useState('');
  const shown = list.filter((one) => one.metadata.name.includes(only.trim()));
  const servers = [...new Set(list.flatMap((one) => encodings(one).map(({ server }) => server)))].sort();
  return (
    <>
      {servers.length > 0 && (
        <ul class="servers">
          {servers.map((server) => (
            <li key={server}>
              <b>{shortOf(servers, server)}</b> <code>{server}</code>
            </li>
          ))}
        </ul>
      )}
      <input
        type="search"
        aria-label="Resource"
        placeholder="Resource…"
        data-shortcut="/"
        value={only}
        onInput={(event) => setOnly(event.currentTarget.value)}
      />
      <table class="plain">
        <caption class="hidden">Storage versions</caption>
        <thead>
          <tr>
            <th scope="col">Resource</th>
            <th scope="col">All encode</th>
            <th scope="col">Servers</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => {
            const common = text(at(one, 'status', 'commonEncodingVersion'));
            return (
              <tr key={one.metadata.uid}>
                <th scope="row">{one.metadata.name}</th>
                <td class={common === '' ? 'is-false' : ''}>{common === '' ? 'they do not agree' : common}</td>
                <td>
                  {common === '' ? (
                    encodings(one).map(({ server, encodes, decodes }) => (
                      <div key={server} title={`reads ${decodes.join(', ')}`}>
                        <code>{shortOf(servers, server)}</code> {encodes}
                      </div>
                    ))
                  ) : (
                    <span class="muted">{encodings(one).length === 1 ? 'one' : `all ${encodings(one).length}`}</span>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </>
  );
}
