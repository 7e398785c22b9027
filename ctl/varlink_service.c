/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/varlink.h"

/* The interface that every Varlink service has, as its specification defines it. */
const char varlink_service_idl[] =
    "# What every Varlink service answers.\n"
    "interface org.varlink.service\n"
    "\n"
    "method GetInfo() -> (\n"
    "  vendor: string,\n"
    "  product: string,\n"
    "  version: string,\n"
    "  url: string,\n"
    "  interfaces: []string\n"
    ")\n"
    "\n"
    "method GetInterfaceDescription(interface: string) -> (description: string)\n"
    "\n"
    "error InterfaceNotFound (interface: string)\n"
    "error MethodNotFound (method: string)\n"
    "error MethodNotImplemented (method: string)\n"
    "error InvalidParameter (parameter: string)\n"
    "error PermissionDenied ()\n"
    "error ExpectedMore ()\n";
