// Reads a token from a kubeconfig. Users and passwords are ignored, since no server accepts them.
//
// This module is loaded when the user selects a kubeconfig. A page cannot present a client certificate or start a
// program. In these cases it names the tool that can.

import { parse } from 'yaml';

export type Found =
  | { kind: 'token'; token: string; user: string; server: string }
  | { kind: 'certificate'; user: string; server: string }
  | { kind: 'nothing'; why: string };

interface Named {
  name?: string;
}

interface User {
  token?: string;
  tokenFile?: string;
  'client-certificate'?: string;
  'client-certificate-data'?: string;
  exec?: { command?: string };
  'auth-provider'?: unknown;
  username?: string;
}

interface Kubeconfig {
  kind?: string;
  'current-context'?: string;
  contexts?: (Named & { context?: { user?: string; cluster?: string } })[];
  users?: (Named & { user?: User })[];
  clusters?: (Named & { cluster?: { server?: string } })[];
}

const nothing = (why: string): Found => ({ kind: 'nothing', why });

export function readKubeconfig(text: string): Found {
  let read: Kubeconfig | null;
  try {
    read = parse(text) as Kubeconfig | null;
  } catch (error) {
    return nothing(`This is no YAML: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (typeof read !== 'object' || read === null || !Array.isArray(read.users)) {
    return nothing('This is no kubeconfig: it has no users.');
  }
  const context = read.contexts?.find((one) => one.name === read['current-context'])?.context;
  const found = read.users.find((one) => one.name === context?.user) ?? read.users[0];
  const user = found?.user ?? {};
  const name = found?.name ?? '';
  const server = read.clusters?.find((one) => one.name === context?.cluster)?.cluster?.server ?? '';
  if (typeof user.token === 'string' && user.token !== '') {
    return { kind: 'token', token: user.token.trim(), user: name, server };
  }
  if (user['client-certificate-data'] !== undefined || user['client-certificate'] !== undefined) {
    return { kind: 'certificate', user: name, server };
  }
  if (user.tokenFile !== undefined) {
    return nothing(`Its token is in the file ${user.tokenFile}, which a page can't read. Paste the token itself.`);
  }
  if (user.exec !== undefined) {
    const command = user.exec.command ?? 'a program';
    return nothing(
      `It gets its credentials from ${command}, which a page can't start. Paste the token that it prints.`,
    );
  }
  if (user['auth-provider'] !== undefined) {
    return nothing("It gets its credentials from an auth-provider, which a page can't start.");
  }
  if (user.username !== undefined) return nothing('It has a password, which Kubernetes servers no longer take.');
  return nothing(`The user ${name} has no credentials in it.`);
}
