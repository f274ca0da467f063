// The parts of the API's objects that the console reads. Types of Kubernetes are generated (kubernetes.ts).

import type { NumberText } from '../lib/json';
import type * as k8s from './kubernetes';

export type Json = null | boolean | number | NumberText | string | Json[] | { [key: string]: Json };
export type JsonObject = Record<string, Json>;

/** A type whose named members are there in every object that is shown. */
type With<T, Names extends keyof T> = T & { [Name in Names]-?: NonNullable<T[Name]> };

export type OwnerReference = With<k8s.OwnerReference, 'apiVersion' | 'kind' | 'name' | 'uid'>;
export type ManagedFields = k8s.ManagedFieldsEntry;
export type ObjectMeta = Omit<With<k8s.ObjectMeta, 'name'>, 'ownerReferences'> & {
  ownerReferences?: OwnerReference[];
};

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [key: string]: unknown;
}

export type ListMeta = k8s.ListMeta;

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

export type StatusCause = k8s.StatusCause;
export type Status = k8s.Status & { kind: 'Status' };

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T;
}

export interface ValueCounts {
  metadata: ListMeta;
  values: { value?: Json; count: number }[];
  totalValues: number;
}
