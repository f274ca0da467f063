// The figures of the first page. Each is one counted list, and leads to that list.

import { useEffect, useState } from 'preact/hooks';
import { getJson, isAborted, METADATA_LIST, send } from '../../api/client';
import { connection } from '../../api/connection';
import { discovery, preferredResource } from '../../api/discovery';
import { collectionPath } from '../../api/paths';
import { isEnded } from '../../api/session';
import type { KubeObject, ObjectList, ValueCounts } from '../../api/types';
import { listHref } from '../../lib/links';
import { at, text } from '../../lib/objects';
import { useStore } from '../../state/store';

/** How often the figures are read again, in milliseconds. */
const AGAIN = 10_000;
/** How near to its limit a quota is named. */
const NEAR = 0.85;

export interface Figure {
  id: string;
  title: string;
  group: string;
  plural: string;
  /** The term that selects what is counted; empty for all. */
  term: string;
  /** Whether more than none is bad. */
  tone: 'bad' | 'warn' | 'plain';
}

const FIGURES: Figure[] = [
  {
    id: 'failing',
    title: 'Failing pods',
    group: '',
    plural: 'pods',
    term: "status.phase == 'Failed' or any(status.containerStatuses, .state.waiting.reason in ('CrashLoopBackOff', 'ImagePullBackOff', 'ErrImagePull', 'CreateContainerConfigError', 'CreateContainerError', 'InvalidImageName', 'RunContainerError'))",
    tone: 'bad',
  },
  { id: 'pending', title: 'Pending pods', group: '', plural: 'pods', term: "status.phase == 'Pending'", tone: 'warn' },
  {
    id: 'nodes',
    title: 'Nodes not ready',
    group: '',
    plural: 'nodes',
    term: "any(status.conditions, .type == 'Ready' and .status != 'True')",
    tone: 'bad',
  },
  {
    id: 'deployments',
    title: 'Deployments not available',
    group: 'apps',
    plural: 'deployments',
    term: "any(status.conditions, .type == 'Available' and .status == 'False')",
    tone: 'bad',
  },
  {
    id: 'jobs',
    title: 'Failed jobs',
    group: 'batch',
    plural: 'jobs',
    term: "any(status.conditions, .type == 'Failed' and .status == 'True')",
    tone: 'warn',
  },
  {
    id: 'claims',
    title: 'Claims not bound',
    group: '',
    plural: 'persistentvolumeclaims',
    term: "status.phase != 'Bound'",
    tone: 'warn',
  },
  {
    id: 'apiservices',
    title: 'API services away',
    group: 'apiregistration.k8s.io',
    plural: 'apiservices',
    term: "any(status.conditions, .type == 'Available' and .status != 'True')",
    tone: 'bad',
  },
  {
    id: 'definitions',
    title: 'Definitions not established',
    group: 'apiextensions.k8s.io',
    plural: 'customresourcedefinitions',
    term: "any(status.conditions, .type == 'Established' and .status != 'True')",
    tone: 'bad',
  },
  {
    id: 'storage',
    title: 'Storage versions that disagree',
    group: 'internal.apiserver.k8s.io',
    plural: 'storageversions',
    term: "any(status.conditions, .type == 'AllEncodingVersionsEqual' and .status == 'False')",
    tone: 'warn',
  },
];

const SIZES: [string, string, string][] = [
  ['', 'pods', 'Pods'],
  ['apps', 'deployments', 'Deployments'],
  ['', 'services', 'Services'],
  ['', 'nodes', 'Nodes'],
  ['', 'namespaces', 'Namespaces'],
];

export interface Counted {
  title: string;
  count: number;
  to: string;
  tone: Figure['tone'];
}

export interface Warning {
  reason: string;
  count: number;
  to: string;
}

export interface NearQuota {
  name: string;
  namespace: string;
  resource: string;
  used: string;
  hard: string;
  share: number;
}

export interface Health {
  version: string;
  ready: { name: string; well: boolean }[] | null;
  figures: Counted[];
  sizes: Counted[];
  warnings: Warning[];
  quotas: NearQuota[];
  loaded: boolean;
}

export const NOTHING: Health = {
  version: '',
  ready: null,
  figures: [],
  sizes: [],
  warnings: [],
  quotas: [],
  loaded: false,
};

type Of = { group: string; version: string; plural: string; namespaced: boolean };

async function count(of: Of, namespaces: string[], term: string, signal: AbortSignal): Promise<number> {
  const namespace = of.namespaced && namespaces.length === 1 ? (namespaces[0] ?? '') : '';
  const several = of.namespaced && namespaces.length > 1 ? inNamespaces(namespaces) : '';
  const filter = [several, term]
    .filter((one) => one !== '')
    .map((one) => `(${one})`)
    .join(' and ');
  const search = new URLSearchParams({ limit: '1', 'keelson.io/count': 'true' });
  if (filter !== '') search.set('keelson.io/filter', filter);
  const response = await send(`${collectionPath(of, namespace)}?${search.toString()}`, {
    accept: METADATA_LIST,
    signal,
  });
  const total = response.headers.get('Keelson-Total-Count');
  if (total !== null) return Number(total);
  const list = JSON.parse(await response.text()) as ObjectList;
  return list.items.length + (list.metadata.remainingItemCount ?? 0);
}

function inNamespaces(namespaces: string[]): string {
  return `metadata.namespace in (${namespaces.map((one) => `'${one}'`).join(', ')})`;
}

function listTo(of: Of, namespaces: string[], term: string): string {
  return listHref(of, { ns: of.namespaced ? namespaces.join(',') : '', f: term });
}

async function checks(signal: AbortSignal): Promise<Health['ready']> {
  const response = await fetch('/readyz?verbose', { signal, cache: 'no-store' });
  const lines = [...(await response.text()).matchAll(/^\[([+-])\](\S+)/gm)];
  return lines.length === 0 ? null : lines.map((match) => ({ name: match[2] ?? '', well: match[1] === '+' }));
}

/** The warnings of the last hour by reason, the most frequent first. */
async function warnings(of: Of, namespaces: string[], signal: AbortSignal): Promise<Warning[]> {
  const since = new Date(Date.now() - 3_600_000).toISOString();
  const term = `type == 'Warning' and lastTimestamp >= time('${since}')`;
  const namespace = namespaces.length === 1 ? (namespaces[0] ?? '') : '';
  const filter = namespaces.length > 1 ? `(${inNamespaces(namespaces)}) and (${term})` : term;
  const search = new URLSearchParams({ 'keelson.io/groupBy': 'reason', 'keelson.io/filter': filter, limit: '8' });
  const counts = await getJson<ValueCounts>(`${collectionPath(of, namespace)}?${search.toString()}`, { signal });
  return counts.values.map(({ value, count: times }) => ({
    reason: text(value),
    count: times,
    to: listTo(of, namespaces, `type == 'Warning' and reason == '${text(value).replaceAll("'", "\\'")}'`),
  }));
}

const UNITS: Record<string, number> = {
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

/** The number of a quantity. */
export function quantity(of: string): number {
  const match = /^([\d.]+)([a-zA-Z]*)$/.exec(of);
  const unit = match?.[2] ?? '';
  return Number(match?.[1] ?? NaN) * (unit === '' ? 1 : Object.hasOwn(UNITS, unit) ? (UNITS[unit] ?? NaN) : NaN);
}

export function nearQuotas(quotas: KubeObject[]): NearQuota[] {
  const found = quotas.flatMap((quota) => {
    const hard = Object.entries((at(quota, 'status', 'hard') ?? {}) as Record<string, unknown>);
    return hard.map(([resource, most]): NearQuota => {
      const used = text(at(quota, 'status', 'used', resource));
      const share = quantity(used) / quantity(text(most));
      const { name, namespace = '' } = quota.metadata;
      return { name, namespace, resource, used, hard: text(most), share: Number.isFinite(share) ? share : 0 };
    });
  });
  return found
    .filter(({ share }) => share >= NEAR)
    .sort((a, b) => b.share - a.share)
    .slice(0, 8);
}

async function quotas(of: Of, namespaces: string[], signal: AbortSignal): Promise<NearQuota[]> {
  const namespace = namespaces.length === 1 ? (namespaces[0] ?? '') : '';
  const list = await getJson<ObjectList>(`${collectionPath(of, namespace)}?limit=500`, { signal });
  return nearQuotas(list.items);
}

/** The health of the cluster, read again and again while the page is seen. */
export function useHealth(namespaces: string[]): Health {
  const { resources, loaded } = useStore(discovery);
  const { returned } = useStore(connection);
  const [health, setHealth] = useState<Health>(NOTHING);
  const key = namespaces.join(',');
  useEffect(() => {
    if (!loaded) return;
    const abort = new AbortController();
    const { signal } = abort;
    const chosen = key === '' ? [] : key.split(',');
    const put = (changes: Partial<Health>) => {
      if (!signal.aborted) setHealth((now) => ({ ...now, ...changes }));
    };
    /** What fails, such as what the user may not list, is left out. */
    const quietly = <T>(asked: Promise<T>, none: T) =>
      asked.catch((error: unknown) => {
        if (isAborted(error)) throw error;
        return none;
      });
    const counted = async (title: string, group: string, plural: string, term: string, tone: Figure['tone']) => {
      const of = preferredResource(resources, group, plural);
      if (of === undefined) return null;
      const found = await quietly<number | null>(count(of, chosen, term, signal), null);
      return found === null ? null : { title, count: found, to: listTo(of, chosen, term), tone };
    };
    const isThere = (one: Counted | null): one is Counted => one !== null;
    const read = async () => {
      if (document.hidden || isEnded()) return;
      const events = preferredResource(resources, '', 'events');
      const limits = preferredResource(resources, '', 'resourcequotas');
      await Promise.all([
        quietly(getJson<{ gitVersion?: string }>('/version', { signal }), {}).then(({ gitVersion = '' }) =>
          put({ version: gitVersion }),
        ),
        quietly(checks(signal), null).then((ready) => put({ ready })),
        Promise.all(FIGURES.map((one) => counted(one.title, one.group, one.plural, one.term, one.tone))).then((all) =>
          put({ figures: all.filter(isThere) }),
        ),
        Promise.all(SIZES.map(([group, plural, title]) => counted(title, group, plural, '', 'plain'))).then((all) =>
          put({ sizes: all.filter(isThere) }),
        ),
        events !== undefined && quietly(warnings(events, chosen, signal), []).then((found) => put({ warnings: found })),
        limits !== undefined && quietly(quotas(limits, chosen, signal), []).then((found) => put({ quotas: found })),
      ]);
      put({ loaded: true });
    };
    void read().catch(() => undefined);
    const timer = setInterval(() => void read().catch(() => undefined), AGAIN);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [resources, loaded, key, returned]);
  return health;
}
