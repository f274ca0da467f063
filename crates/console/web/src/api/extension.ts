// The `keelson.io/` parameters that the server announces, with the requests that accept each of them.

import { getJson } from './client';

interface Announcement {
  parameters?: { name: string; requests?: string[] }[];
}

async function announced(): Promise<Set<string>> {
  const found = await getJson<Announcement>('/apis/keelson.io/v1alpha1');
  return new Set(
    (found.parameters ?? []).flatMap(({ name, requests }) => (requests ?? []).map((one) => `${one} ${name}`)),
  );
}

let known: Promise<Set<string>> | null = null;

/** Whether the server takes a parameter; asked once. One that announces nothing takes those of lists alone. */
export async function takes(request: 'get' | 'list' | 'watch', parameter: string): Promise<boolean> {
  known ??= announced().catch(() => new Set<string>());
  return (await known).has(`${request} keelson.io/${parameter}`);
}
