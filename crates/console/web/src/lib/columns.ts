// The object path by which each column is sorted. A Table has no paths for its columns, so this module lists them.
//
// A column that is computed from several fields is sorted by the most significant one. The paths of custom resources'
// columns come from their definitions.

import { getJson } from '../api/client';
import { isBuiltIn, type Resource } from '../api/discovery';
import type { Column } from '../api/types';
import { own } from './own';

export type SortPaths = Record<string, string>;

const CREATED = '.metadata.creationTimestamp:time';
const ANY: SortPaths = {
  Name: '.metadata.name',
  Namespace: '.metadata.namespace',
  Age: CREATED,
  'Created At': CREATED,
};

const number = (path: string) => `${path}:number`;
const time = (path: string) => `${path}:time`;
const REPLICAS: SortPaths = {
  Desired: number('.spec.replicas'),
  Current: number('.status.replicas'),
  Ready: number('.status.readyReplicas'),
};

const KNOWN: Record<string, SortPaths> = {
  pods: {
    Ready: '.status.conditions[0].status',
    Status: '.status.phase',
    Restarts: number('.status.containerStatuses[0].restartCount'),
    IP: '.status.podIP',
    Node: '.spec.nodeName',
    'Nominated Node': '.status.nominatedNodeName',
  },
  nodes: {
    Version: '.status.nodeInfo.kubeletVersion:version',
    'OS-Image': '.status.nodeInfo.osImage',
    'Kernel-Version': '.status.nodeInfo.kernelVersion:version',
    'Container-Runtime': '.status.nodeInfo.containerRuntimeVersion',
  },
  namespaces: { Status: '.status.phase' },
  services: { Type: '.spec.type', 'Cluster-IP': '.spec.clusterIP', 'Port(s)': number('.spec.ports[0].port') },
  secrets: { Type: '.type' },
  events: {
    'Last Seen': time('.lastTimestamp'),
    'First Seen': time('.firstTimestamp'),
    Type: '.type',
    Reason: '.reason',
    Object: '.involvedObject.name',
    Source: '.source.component',
    Message: '.message',
    Count: number('.count'),
  },
  persistentvolumes: {
    Capacity: '.spec.capacity.storage:quantity',
    'Reclaim Policy': '.spec.persistentVolumeReclaimPolicy',
    Status: '.status.phase',
    Claim: '.spec.claimRef.name',
    StorageClass: '.spec.storageClassName',
    VolumeMode: '.spec.volumeMode',
  },
  persistentvolumeclaims: {
    Status: '.status.phase',
    Volume: '.spec.volumeName',
    Capacity: '.status.capacity.storage:quantity',
    StorageClass: '.spec.storageClassName',
    VolumeMode: '.spec.volumeMode',
  },
  replicationcontrollers: REPLICAS,
  'replicasets.apps': REPLICAS,
  'deployments.apps': {
    Ready: number('.status.readyReplicas'),
    'Up-to-date': number('.status.updatedReplicas'),
    Available: number('.status.availableReplicas'),
  },
  'statefulsets.apps': { Ready: number('.status.readyReplicas') },
  'daemonsets.apps': {
    Desired: number('.status.desiredNumberScheduled'),
    Current: number('.status.currentNumberScheduled'),
    Ready: number('.status.numberReady'),
    'Up-to-date': number('.status.updatedNumberScheduled'),
    Available: number('.status.numberAvailable'),
  },
  'controllerrevisions.apps': { Revision: number('.revision') },
  'jobs.batch': { Completions: number('.status.succeeded'), Duration: time('.status.startTime') },
  'cronjobs.batch': {
    Schedule: '.spec.schedule',
    Timezone: '.spec.timeZone',
    Suspend: '.spec.suspend',
    'Last Schedule': time('.status.lastScheduleTime'),
  },
  'horizontalpodautoscalers.autoscaling': {
    MinPods: number('.spec.minReplicas'),
    MaxPods: number('.spec.maxReplicas'),
    Replicas: number('.status.currentReplicas'),
    Reference: '.spec.scaleTargetRef.name',
  },
  'leases.coordination.k8s.io': { Holder: '.spec.holderIdentity' },
  'endpointslices.discovery.k8s.io': { AddressType: '.addressType' },
  'ingresses.networking.k8s.io': { Class: '.spec.ingressClassName', Hosts: '.spec.rules[0].host' },
  'ingressclasses.networking.k8s.io': { Controller: '.spec.controller' },
  'ipaddresses.networking.k8s.io': { ParentRef: '.spec.parentRef.name' },
  'poddisruptionbudgets.policy': {
    'Min Available': '.spec.minAvailable',
    'Max Unavailable': '.spec.maxUnavailable',
    'Allowed Disruptions': number('.status.disruptionsAllowed'),
  },
  'rolebindings.rbac.authorization.k8s.io': { Role: '.roleRef.name' },
  'clusterrolebindings.rbac.authorization.k8s.io': { Role: '.roleRef.name' },
  'priorityclasses.scheduling.k8s.io': {
    Value: number('.value'),
    'Global-Default': '.globalDefault',
    PreemptionPolicy: '.preemptionPolicy',
  },
  'storageclasses.storage.k8s.io': {
    Provisioner: '.provisioner',
    ReclaimPolicy: '.reclaimPolicy',
    VolumeBindingMode: '.volumeBindingMode',
    AllowVolumeExpansion: '.allowVolumeExpansion',
  },
  'volumeattachments.storage.k8s.io': {
    Attacher: '.spec.attacher',
    PV: '.spec.source.persistentVolumeName',
    Node: '.spec.nodeName',
    Attached: '.status.attached',
  },
  'certificatesigningrequests.certificates.k8s.io': {
    SignerName: '.spec.signerName',
    Requestor: '.spec.username',
    RequestedDuration: number('.spec.expirationSeconds'),
  },
  'flowschemas.flowcontrol.apiserver.k8s.io': {
    PriorityLevel: '.spec.priorityLevelConfiguration.name',
    MatchingPrecedence: number('.spec.matchingPrecedence'),
    DistinguisherMethod: '.spec.distinguisherMethod.type',
  },
  'prioritylevelconfigurations.flowcontrol.apiserver.k8s.io': { Type: '.spec.type' },
  'apiservices.apiregistration.k8s.io': { Service: '.spec.service.name', Available: '.status.conditions[0].status' },
  'customresourcedefinitions.apiextensions.k8s.io': { 'Created At': CREATED },
  'storageversions.internal.apiserver.k8s.io': { CommonEncodingVersion: '.status.commonEncodingVersion' },
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
/** What a query takes of a JSONPath: steps, quoted steps and places of lists. */
const STEPS = /^(\.[A-Za-z_][\w-]*|\.[A-Za-z_][\w-]*(\\\.[\w-]+)+|\[\d+\]|\['[^']+'\])+$/;

async function ofDefinition(resource: Resource): Promise<SortPaths> {
  const name = encodeURIComponent(`${resource.plural}.${resource.group}`);
  const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
  const definition = await getJson<Definition>(path);
  const version = definition.spec?.versions?.find((one) => one.name === resource.version);
  const columns = (version?.additionalPrinterColumns ?? []).filter((column) => STEPS.test(column.jsonPath));
  return Object.fromEntries(columns.map((column) => [column.name, column.jsonPath + (own(TYPES, column.type) ?? '')]));
}

/** By which paths the columns of a resource are sorted. Whoever may not read definitions sorts by name and age alone. */
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
export function usualFacets(resource: Resource, namespace: string): string[] {
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
  const first = resource.namespaced && namespace === '' ? ['.metadata.namespace'] : [];
  return [...first, ...(own(facets, key) ?? [])];
}
