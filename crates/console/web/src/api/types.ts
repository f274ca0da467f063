// The parts of the API's objects that the console reads.

import type { NumberText } from '../lib/json';

export type Json = null | boolean | number | NumberText | string | Json[] | { [key: string]: Json };
export type JsonObject = Record<string, Json>;

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface ManagedFields {
  manager?: string;
  operation?: string;
  apiVersion?: string;
  time?: string;
  subresource?: string;
  fieldsV1?: JsonObject;
}

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedFields[];
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [key: string]: unknown;
}

export interface ListMeta {
  resourceVersion?: string;
  continue?: string;
  remainingItemCount?: number;
}

export interface ObjectList {
  metadata: ListMeta;
  items: KubeObject[];
}

export interface Column {
  name: string;
  type: string;
  format: string;
  description: string;
  priority: number;
}

export interface Row {
  cells: Json[];
  object: { metadata: ObjectMeta };
}

export interface Table {
  kind: string;
  metadata: ListMeta;
  columnDefinitions: Column[] | null;
  rows: Row[] | null;
}

export interface StatusCause {
  reason?: string;
  message?: string;
  field?: string;
}

export interface Status {
  kind: 'Status';
  status?: string;
  message?: string;
  reason?: string;
  code?: number;
  details?: { name?: string; kind?: string; causes?: StatusCause[]; retryAfterSeconds?: number };
  metadata?: ListMeta;
}

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T;
}

export interface ValueCounts {
  metadata: ListMeta;
  values: { value?: Json; count: number }[];
  totalValues: number;
}
