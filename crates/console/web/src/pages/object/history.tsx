// The past states of an object within the server's history window, and the difference between any two of them.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { isAborted } from '../../api/client';
import { oldestRevision, replace, versionsSince } from '../../api/objects';
import type { JsonObject, KubeObject } from '../../api/types';
import { asJson, shown } from '../../lib/objects';
import { full } from '../../lib/time';
import { type Place, withParams } from '../../state/router';
import { announce } from '../../ui/announce';
import { Dialog } from '../../ui/dialog';
import { DiffView } from '../../ui/diff-view';
import { Problem } from '../../ui/problem';
import { useYaml } from '../../ui/yaml-view';
import type { Subject } from './object';

interface Told {
  versions: KubeObject[];
  since: string;
  error: unknown;
}

function useVersions(subject: Subject): Told | null {
  const [told, setTold] = useState<Told | null>(null);
  const { resource, of } = subject;
  const { resourceVersion = '' } = subject.object.metadata;
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const reach = await oldestRevision(resource, of.namespace, abort.signal);
      const since = String(reach.oldest);
      const versions = await versionsSince(resource, of, since, resourceVersion, abort.signal);
      setTold({ versions, since, error: null });
    };
    read().catch((error: unknown) => {
      if (!isAborted(error)) setTold({ versions: [], since: '', error });
    });
    return () => abort.abort();
  }, [resource, of, resourceVersion]);
  return told;
}

function lastWriter(object: KubeObject): string {
  const entries = [...(object.metadata.managedFields ?? [])];
  const [last] = entries.sort((a, b) => (b.time ?? '').localeCompare(a.time ?? ''));
  return last === undefined ? '' : `${last.manager ?? ''}, ${full(last.time ?? '')}`;
}

export function History({ subject, place }: { subject: Subject; place: Place }) {
  const told = useVersions(subject);
  const [left, setLeft] = useState<number | null>(null);
  const [right, setRight] = useState<number | null>(null);
  if (told === null) return <p class="loading">Looking how far the history goes…</p>;
  if (told.error !== null) return <Problem error={told.error} />;
  const { versions, since } = told;
  const last = versions.length - 1;
  if (last < 1) {
    return (
      <p class="muted">Nothing about it has changed since revision {since}, which is as far as the history goes.</p>
    );
  }
  const before = Math.min(left ?? last - 1, last);
  const after = Math.min(right ?? last, last);
  return (
    <div class="history">
      <p class="muted">
        {versions.length} states since revision {since}, which is as far as the history goes.
      </p>
      <div class="sliders">
        <Chooser label="From" value={before} versions={versions} place={place} onChange={setLeft} />
        <Chooser label="To" value={after} versions={versions} place={place} onChange={setRight} />
      </div>
      <Difference before={versions[before]} after={versions[after]} />
      <Undo subject={subject} version={versions[before]} now={versions[last]} />
    </div>
  );
}

interface ChooserProps {
  label: string;
  value: number;
  versions: KubeObject[];
  place: Place;
  onChange: (value: number) => void;
}

function Chooser({ label, value, versions, place, onChange }: ChooserProps) {
  const object = versions[value];
  const revision = object?.metadata.resourceVersion ?? '';
  return (
    <label>
      {label}: state {value + 1} of {versions.length}, revision {revision}
      <input
        type="range"
        min={0}
        max={versions.length - 1}
        step={1}
        value={value}
        aria-valuetext={`revision ${revision}`}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <small>
        {object === undefined ? '' : lastWriter(object)} ·{' '}
        <a href={withParams(place, { rv: revision, tab: '' })}>the object then</a>
      </small>
    </label>
  );
}

/** Makes the object again what it was: its content of then, above the revision of now. */
function Undo(props: { subject: Subject; version: KubeObject | undefined; now: KubeObject | undefined }) {
  const { subject, version, now } = props;
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  if (version === undefined || now === undefined || version === now) return null;
  const revision = version.metadata.resourceVersion ?? '';
  const undo = async () => {
    setBusy(true);
    try {
      const target = { resource: subject.resource, of: subject.of, dryRun: false };
      await replace(target, restored(version, now));
      announce(`${subject.of.name} is as it was at revision ${revision}`);
      setAsks(false);
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <div class="buttons">
        <button type="button" onClick={() => setAsks(true)}>
          Make it as it was at revision {revision}
        </button>
      </div>
      {asks && (
        <Dialog title="Undo by history" onClose={() => setAsks(false)}>
          {error !== null && <Problem error={error} />}
          <p>
            {subject.of.name} becomes what it was at revision {revision}. Its status and its metadata of the server
            stay. If somebody writes meanwhile, nothing is changed.
          </p>
          <div class="buttons">
            <button type="button" autofocus onClick={() => setAsks(false)}>
              Keep it as it is
            </button>
            <button type="button" class="main" disabled={busy} onClick={() => void undo()}>
              Undo
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** The content of a past state, with the status and the identity of the present one. */
function restored(version: KubeObject, now: KubeObject): JsonObject {
  const object = { ...(asJson(shown(version)) as JsonObject) };
  const metadata = { ...(object['metadata'] as JsonObject) };
  const present = asJson(now) as JsonObject;
  for (const name of ['resourceVersion', 'uid', 'generation', 'creationTimestamp']) {
    const value = (present['metadata'] as JsonObject)[name];
    if (value !== undefined) metadata[name] = value;
  }
  object['metadata'] = metadata;
  if (present['status'] === undefined) delete object['status'];
  else object['status'] = present['status'];
  return object;
}

function Difference({ before, after }: { before: KubeObject | undefined; after: KubeObject | undefined }) {
  const left = useYaml(useMemo(() => (before === undefined ? '' : shown(before)), [before]));
  const right = useYaml(useMemo(() => (after === undefined ? '' : shown(after)), [after]));
  if (left === null || right === null) return <p class="loading">Loading…</p>;
  return <DiffView before={left} after={right} label="What changed between the two" />;
}
