// The schema of a kind, from the server's OpenAPI documents. It is read on demand, to merge and to apply edits.

import { type Shape, shapeOf, UNKNOWN } from '../lib/shape';
import { isMap } from '../lib/json';
import { own } from '../lib/own';
import { ApiError, getJson } from './client';
import { type Resource } from './discovery';
import { apiPath } from './paths';
import type { Json, JsonObject } from './types';

interface OpenApi {
  components?: { schemas?: JsonObject };
}

/** Answers after which there is no schema to be had. */
const NONE = [403, 404, 406];

/** The shape of the objects of a kind. Without a schema, lists are values that have no parts. */
export async function readShape(of: Pick<Resource, 'group' | 'version'>, kind: string): Promise<Shape> {
  const { group, version } = of;
  const path = apiPath('openapi', 'v3', ...(group === '' ? ['api'] : ['apis', group]), version);
  try {
    const document = await getJson<OpenApi>(path);
    const schemas = document.components?.schemas ?? {};
    const found = Object.values(schemas).find((schema) => isOf(schema, group, version, kind));
    return found === undefined ? UNKNOWN : shapeOf(schemas, found);
  } catch (error) {
    if (error instanceof ApiError && NONE.includes(error.code)) return UNKNOWN;
    throw error;
  }
}

function isOf(schema: Json, group: string, version: string, kind: string): boolean {
  const kinds = isMap(schema) ? own(schema, 'x-kubernetes-group-version-kind') : undefined;
  const is = (one: Json) =>
    isMap(one) && own(one, 'group') === group && own(one, 'version') === version && own(one, 'kind') === kind;
  return Array.isArray(kinds) && kinds.length === 1 && kinds.some(is);
}
