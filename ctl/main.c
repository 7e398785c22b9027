/* SPDX-License-Identifier: Apache-2.0 */
/* stratactl: shows and steers strataD. */
#include "ctl/ctl.h"

int main(int argc, char **argv)
{
    return ctl_run(argc, argv, stdout, stderr);
}
