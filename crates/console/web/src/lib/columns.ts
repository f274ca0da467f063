// The order of each column of a list: by the cell as the server computes it, or by the path of its value.
//
// Ages and other times are sorted by their paths, since cells change while time passes. A larger age is an earlier time:
// such a path begins with `-`.

import { getJson } from '../api/client';
import type { Resource } from '../api/discovery';
import { isBuiltIn } from './groups';
import type { Column } from '../api/types';
import { own } from './own';

export type SortPaths = Record<string, string>;

const ANY: SortPaths = {
  Name: '.metadata.name',
  Namespace: '.metadata.namespace',
  Age: '-.metadata.creationTimestamp:time',
  'Created At': '.metadata.creationTimestamp:time',
};

/** Columns whose cells are no order by themselves. */
const KNOWN: Record<string, SortPaths> = {
  pods: { Node: '.spec.nodeName', 'Nominated Node': '.status.nominatedNodeName' },
  nodes: {
    Version: '.status.nodeInfo.kubeletVersion:version',
    'Kernel-Version': '.status.nodeInfo.kernelVersion:version',
    'Container-Runtime': '.status.nodeInfo.containerRuntimeVersion',
  },
  events: {
    'Last Seen': '-.lastTimestamp:time',
    'First Seen': '-.firstTimestamp:time',
    Reason: '.reason',
    Type: '.type',
    Message: '.message',
  },
  persistentvolumes: { Capacity: '.spec.capacity.storage:quantity' },
  persistentvolumeclaims: { Capacity: '.status.capacity.storage:quantity' },
  'cronjobs.batch': { 'Last Schedule': '-.status.lastScheduleTime:time' },
  'customresourcedefinitions.apiextensions.k8s.io': { 'Created At': '.metadata.creationTimestamp:time' },
};

interface Definition {
  spec?: {
    versions?: {
      name: string;
      additionalPrinterColumns?: { name: string; type: string; jsonPath: string }[];
    }[];
  };
}

const TYPES: Record<string, string> = { integer: ':number', number: ':number', date: ':time' };

/** The order of a column that is sorted by its cells. */
function byCell(name: string): string {
  return `column('${name.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}')`;
}

/** What a column is sorted by. */
export function sortOf(paths: SortPaths, column: Pick<Column, 'name'>): string {
  return own(paths, column.name) ?? byCell(column.name);
}

/** What a query takes of a JSONPath: steps, quoted steps and places of lists. */
const STEPS = /^(\.[A-Za-z_][\w-]*|\.[A-Za-z_][\w-]*(\\\.[\w-]+)+|\[\d+\]|\['[^']+'\])+$/;

async function ofDefinition(resource: Resource): Promise<SortPaths> {
  const name = encodeURIComponent(`${resource.plural}.${resource.group}`);
  const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
  const definition = await getJson<Definition>(path);
  const version = definition.spec?.versions?.find((one) => one.name === resource.version);
  const columns = (version?.additionalPrinterColumns ?? []).filter((column) => STEPS.test(column.jsonPath));
  return Object.fromEntries(
    columns.map(({ name: title, type, jsonPath }) => [
      title,
      // A date is shown as an age.
      (type === 'date' ? '-' : '') + jsonPath + (own(TYPES, type) ?? ''),
    ]),
  );
}

/** The paths that columns are sorted by. Other columns are sorted by their cells. */
export async function sortPaths(resource: Resource): Promise<SortPaths> {
  const key = resource.group === '' ? resource.plural : `${resource.plural}.${resource.group}`;
  const known = own(KNOWN, key);
  if (known !== undefined || isBuiltIn(resource.group)) return { ...ANY, ...known };
  const defined = await ofDefinition(resource).catch(() => ({}));
  return { ...ANY, ...defined };
}

export const commonPaths = ANY;

/** Whether the cells of a column stand at the right, as numbers do. */
export function isNumeric(column: Column): boolean {
  return column.type === 'integer' || column.type === 'number';
}

/** What a list of the resource is usually divided by. */
export function usualFacets(resource: Resource, isOfOne: boolean): string[] {
  const facets: Record<string, string[]> = {
    pods: ['.status.phase', '.spec.nodeName', '.spec.containers[*].image'],
    events: ['.type', '.reason', '.involvedObject.kind'],
    services: ['.spec.type'],
    secrets: ['.type'],
    nodes: ['.status.nodeInfo.kubeletVersion'],
    persistentvolumes: ['.status.phase', '.spec.storageClassName'],
    persistentvolumeclaims: ['.status.phase', '.spec.storageClassName'],
    namespaces: ['.status.phase'],
    'deployments.apps': ['.spec.replicas', '.spec.template.spec.containers[*].image'],
    'jobs.batch': ['.status.conditions[*].type'],
    'storageversions.internal.apiserver.k8s.io': ['.status.commonEncodingVersion'],
  };
  const key = resource.group === '' ? resource.plural : `${resource.plural}.${resource.group}`;
  const first = resource.namespaced && !isOfOne ? ['.metadata.namespace'] : [];
  return [...first, ...(own(facets, key) ?? [])];
}
